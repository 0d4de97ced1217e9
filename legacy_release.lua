-- Gives a lock back, if the token still holds it.
--
-- KEYS[1] the lock
-- KEYS[2] its owner
-- KEYS[3] its stamp
-- ARGV[1] token
-- ARGV[2] the time by the caller's clock, Unix ms; empty: by this server's
--
-- 1: deleted. 0: nothing there is the token's. -1: the token's lock was not released before, but
-- its time has passed or the key holds another. Unless it is 1, whatever is there was left alone.

local ms = tonumber(ARGV[2]) or redis.call('TIME')[1] * 1000
local now = math.floor(ms / 1000)
local value = redis.call('GET', KEYS[1])
if redis.call('GET', KEYS[2]) ~= ARGV[1] then
  return 0
end
if not value then
  return -1
end
if redis.call('GET', KEYS[3]) ~= value then
  return -1
end
-- 4. The key of a lock whose time has passed may be somebody else's.
if now > tonumber(value) then
  return -1
end
redis.call('DEL', KEYS[1], KEYS[2], KEYS[3])
return 1
