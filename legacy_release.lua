-- Releases a lock if the token still holds it.
--
-- KEYS[1] the lock
-- KEYS[2] its owner
-- KEYS[3] its stamp
-- ARGV[1] token
--
-- Returns 1 if the keys were deleted. Otherwise nothing was changed. Returns 0 if the token owns nothing, and -1 if the
-- token owned the lock, but its time has passed or its key is gone or holds another time.

local now = tonumber(redis.call('TIME')[1])
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
-- 4. After its time has passed, the key may be another owner's.
if now > tonumber(value) then
  return -1
end
redis.call('DEL', KEYS[1], KEYS[2], KEYS[3])
return 1
