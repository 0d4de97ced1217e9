-- Takes a lock for a token, or says who has it and keeps a place in the queue for it. Sent again it grants
-- again, with a new fence, and keeps the place.
--
-- KEYS[1] the lock
-- KEYS[2] the fence register, one for all locks
-- KEYS[3] the lock's queue; absent: no place is asked for
-- ARGV[1] token
-- ARGV[2] TTL, ms
-- ARGV[3] the entry to queue: "<TTL, ms> <channel of the waiter's process> <its number there> <token>"
--
-- Granted: the fence as an integer, negative where the token had the lock already.
-- Held by another, without a queue: {what is left of the holder's TTL in ms, -1 where it has none}.
-- With a queue: {the same for the first in it, -1 for the others; the holder; 1 if the entry is new; 1 if
-- it is the first; TIME's seconds; TIME's µs}.

local registerMemory = 86400000 -- how long the register outlives its last floor, ms
local slack = 10000 -- how far the register may lag behind the clock, µs
local queueMemory = 60000 -- how long the queue outlives its last look, ms: waiters look about once a second

local call, pcall = redis.call, redis.pcall
local queue = KEYS[3]
local new = call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])

if not new then
  local holder = call('GET', KEYS[1])
  if holder ~= ARGV[1] then
    if not queue then
      return {call('PTTL', KEYS[1])}
    end
    -- The last place is the highest score + 1, not the time: a clock that was set back would let
    -- newcomers overtake. Whoever queues already keeps its place.
    local last = call('ZRANGE', queue, -1, -1, 'WITHSCORES')
    local fresh = call('ZADD', queue, 'NX', (last[2] or 0) + 1, ARGV[3])
    call('PEXPIRE', queue, queueMemory)
    local first = not last[1] or fresh == 0 and call('ZRANK', queue, ARGV[3]) == 0
    local time = call('TIME')
    return {first and call('PTTL', KEYS[1]) or -1, holder, fresh, first and 1 or 0,
      tonumber(time[1]), tonumber(time[2])}
  end
  -- A lease is never shortened by an acquire that comes again.
  if call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
    call('PEXPIRE', KEYS[1], ARGV[2])
  end
end
if queue then
  pcall('ZREM', queue, ARGV[3]) -- a queue of another type is none
end

-- The register orders the grants. The clock is its floor, so that fences keep growing after it was lost.
local fence = pcall('INCR', KEYS[2])
if type(fence) == 'table' then
  if new then
    call('DEL', KEYS[1])
  end
  if string.find(fence.err, 'WRONGTYPE') or string.find(fence.err, 'integer') or string.find(fence.err, 'overflow') then
    return redis.error_reply('ERR the fence register ' .. KEYS[2]
      .. ' holds something else: delete it, or use WithKeyPrefix')
  end
  return fence
end
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
if fence < now - slack then
  fence = now
  call('SET', KEYS[2], string.format('%.0f', fence), 'PX', registerMemory)
end
return new and fence or -fence
