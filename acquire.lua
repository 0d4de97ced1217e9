-- Takes a lock for a token, or says who has it and keeps a place in the queue for it. Sent again
-- it grants again, and keeps the place.
--
-- KEYS[1] the lock
-- KEYS[2] its fence counter; absent: no fence is asked for, and no place
-- KEYS[3] its queue; absent: no place is asked for
-- ARGV[1] token
-- ARGV[2] TTL, ms
-- ARGV[3] grain of the clock that is the counter's floor, µs; absent: 1
-- ARGV[4] the entry to queue: "<TTL, ms> <channel of the waiter's process> <its number there> <token>"
-- ARGV[5] set where a lease that the token has already is left as long as it is
--
-- Granted: the fence as an integer, or 1 without a counter; negative where the token had the lock
-- already.
-- Held by another, without a queue: {what is left of the holder's TTL in ms, -1 where it has none}.
-- With a queue: {the same for the first in it, -1 for the others; the holder; 1 if the entry is
-- new; 1 if it is the first; TIME's seconds; TIME's µs}.

local fenceMemory = 86400000 -- how long the counter outlives its last use, ms
local queueMemory = 60000 -- how long the queue does: waiters use it about once a second

local queue = KEYS[3]
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then
  if not queue then
    return {redis.call('PTTL', KEYS[1])}
  end
  -- The last place is the highest score + 1, not the time: a clock that was set back would let
  -- newcomers overtake. Whoever queues already keeps its place.
  local last = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')
  local new = redis.call('ZADD', queue, 'NX', (last[2] or 0) + 1, ARGV[4])
  redis.call('PEXPIRE', queue, queueMemory)
  local first = not last[1] or new == 0 and redis.call('ZRANK', queue, ARGV[4]) == 0
  local time = redis.call('TIME')
  return {first and redis.call('PTTL', KEYS[1]) or -1, holder, new, first and 1 or 0,
    tonumber(time[1]), tonumber(time[2])}
end

-- What may fail comes before any write: a key of another type stops the script and leaves nothing.
local fence
if KEYS[2] then
  fence = tonumber(redis.call('GET', KEYS[2]) or '0')
  if not fence then
    return redis.error_reply('ERR the fence counter holds something else')
  end
end
if queue then
  redis.call('ZREM', queue, ARGV[4])
end
-- A lease is never shortened by an acquire that comes again. WAIT confirms what its connection
-- wrote, so whatever grants writes: here the value that is there already.
if not holder or not ARGV[5] and redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
elseif not fence then
  redis.call('SETRANGE', KEYS[1], 0, ARGV[1])
end
if not fence then
  return holder and -1 or 1
end

-- The clock is the counter's floor: fences keep growing after the counter was lost.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
fence = math.max(fence + 1, now - now % (ARGV[3] or 1))
redis.call('SET', KEYS[2], string.format('%.0f', fence), 'PX', fenceMemory)
return holder and -fence or fence
