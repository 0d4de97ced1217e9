-- Acquires a lock for a token. If another token holds the lock, it returns the holder and can queue an entry for the
-- token. A resend grants the lock again, with a new fence, and keeps the place in the queue.
--
-- KEYS[1] the lock
-- KEYS[2] the fence register, one for all locks
-- KEYS[3] the queue of the lock
-- ARGV[1] token
-- ARGV[2] TTL in ms
-- ARGV[3] the entry to queue: "<TTL in ms> <channel of the waiter's process> <random number> <token>"; absent: none
-- ARGV[4] set if the entry should already be in the queue
--
-- Granted: the fence as an integer, negative if the token already held the lock.
-- Held by another: {what is left of the holder's TTL in ms, -1 if it has none; the holder}. With an entry also: 1 if the
-- entry is new; 1 if it is the first; seconds and µs of TIME.

local registerMemory = 86400000 -- TTL of the register after the clock has set it, ms
local slack = 10000 -- how far the register may lag behind the clock, µs
local queueMemory = 60000 -- TTL of the queue after a look, ms: waiters look every few seconds

local call, pcall = redis.call, redis.pcall
local queue, entry = KEYS[3], ARGV[3]
local holder = entry and call('GET', KEYS[1]) -- if somebody waits, the lock is most likely held
local new = not holder and call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])

if not new then
  holder = holder or call('GET', KEYS[1])
  if holder ~= ARGV[1] then
    if not entry then
      return {call('PTTL', KEYS[1]), holder}
    end
    local place = ARGV[4] and call('ZSCORE', queue, entry)
    local keeps = place and place ~= '0' -- score 0: the entry was handed a lock that has expired
    local fresh, first, refresh = 0, nil, true
    if keeps then
      first = call('ZCOUNT', queue, '(0', '(' .. place) == 0
    else
      -- A new score is the highest + 1 and not the time, since a clock may be set back.
      local last = call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2] or '0'
      fresh = call('ZADD', queue, place and 'CH' or 'NX', last + 1, entry)
      first = fresh == 1 and last == '0'
      refresh = first or (last + 1) % 16 == 0
    end
    if refresh then
      call('PEXPIRE', queue, queueMemory)
    end
    local time = call('TIME')
    return {call('PTTL', KEYS[1]), holder, fresh, first and 1 or 0,
      tonumber(time[1]), tonumber(time[2])}
  end
  -- A resend never shortens the lease.
  if call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
    call('PEXPIRE', KEYS[1], ARGV[2])
  end
  -- A lock that was handed to a waiter is from now on also held by this call.
  pcall('ZREMRANGEBYSCORE', queue, 0, 0)
end
if entry then
  pcall('ZREM', queue, entry) -- a key of another type counts as no queue
end

-- The register orders the grants. It never lags far behind the clock, so fences grow even if it was lost.
local fence = pcall('INCR', KEYS[2])
if type(fence) == 'number' and fence >= 2^53 then -- Lua rounds integers above that
  pcall('DECR', KEYS[2])
  fence = {err = 'overflow'}
end
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
