-- Returns who holds a lock, and who waits, without changing anything.
--
-- KEYS[1] the lock
-- KEYS[2] its queue; absent: it has none
--
-- Returns {the token or false; the waiters, see waiters.lua; what is left of its TTL in ms; the length of the queue}.

local waiters, count = {}, 0
if KEYS[2] then
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
waiters, count = redis.call('ZRANGE', KEYS[2], 0, 99, 'WITHSCORES'), redis.call('ZCARD', KEYS[2])
if waiters[1] and string.sub(waiters[1], 1, 1) == '!' then -- a mark, see roll_call.lua and semaphore.lua
  table.remove(waiters, 1)
  table.remove(waiters, 1)
  count = count - 1
end
for i = 2, #waiters, 2 do waiters[i] = math.ceil(math.max(now - waiters[i], 0)) end
end
return {redis.call('GET', KEYS[1]), waiters, redis.call('PTTL', KEYS[1]), count}
