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
  -- include waiters.lua
end
return {redis.call('GET', KEYS[1]), waiters, redis.call('PTTL', KEYS[1]), count}
