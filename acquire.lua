-- Takes a lock for a token, or says who has it and keeps a place in the queue for it. Sent again it grants
-- again, with a new fence, and keeps the place.
--
-- KEYS[1] the lock
-- KEYS[2] the fence register, one for all locks
-- KEYS[3] the lock's queue
-- ARGV[1] token
-- ARGV[2] TTL, ms
-- ARGV[3] the entry to queue: "<TTL, ms> <channel of the waiter's process> <random number> <token>";
--         absent: no place is asked for
-- ARGV[4] set where the entry should be in the queue already
--
-- Granted: the fence as an integer, negative where the token had the lock already.
-- Held by another: {what is left of the holder's TTL in ms, -1 where it has none, or for a new entry that is not
-- the first; the holder}, and with an entry also 1 if the entry is new; 1 if it is the first; TIME's seconds; TIME's µs.

local registerMemory = 86400000 -- how long the register outlives its last floor, ms
local slack = 10000 -- how far the register may lag behind the clock, µs
local queueMemory = 60000 -- how long the queue outlives its last look, ms: waiters look every few seconds

local call, pcall = redis.call, redis.pcall
local queue, entry = KEYS[3], ARGV[3]
local holder = entry and call('GET', KEYS[1]) -- where others wait too it is held, most likely
local new = not holder and call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])

if not new then
  holder = holder or call('GET', KEYS[1])
  if holder ~= ARGV[1] then
    if not entry then
      return {call('PTTL', KEYS[1]), holder}
    end
    local place = ARGV[4] and call('ZSCORE', queue, entry)
    local keeps = place and place ~= '0' -- a score of 0 marks an entry that has lost the lock it was handed
    local fresh, first, refresh = 0, nil, true
    if keeps then
      first = call('ZCOUNT', queue, '(0', '(' .. place) == 0
    else
      -- The last place is the highest score + 1, not the time: a clock that was set back would let newcomers
      -- overtake.
      local last = call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2] or '0'
      fresh = call('ZADD', queue, place and 'CH' or 'NX', last + 1, entry)
      first = fresh == 1 and last == '0'
      refresh = first or (last + 1) % 16 == 0
    end
    if refresh then
      call('PEXPIRE', queue, queueMemory)
    end
    local time = call('TIME')
    return {(keeps or first) and call('PTTL', KEYS[1]) or -1, holder, fresh, first and 1 or 0,
      tonumber(time[1]), tonumber(time[2])}
  end
  -- A lease is never shortened by an acquire that comes again.
  if call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
    call('PEXPIRE', KEYS[1], ARGV[2])
  end
  -- From now on it is no longer the lock of the waiter that it was handed to alone.
  pcall('ZREMRANGEBYSCORE', queue, 0, 0)
end
if entry then
  pcall('ZREM', queue, entry) -- a queue of another type is none
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
