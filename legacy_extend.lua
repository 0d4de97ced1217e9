-- Extends a lock if the token still holds it. It never shortens a lease, and never restores a missing key.
--
-- KEYS[1] the lock
-- KEYS[2] its owner
-- KEYS[3] its stamp
-- ARGV[1] token
-- ARGV[2] TTL in s
--
-- Returns 1 if the lock lasts for the TTL or longer. Returns 0, and changes nothing, if the token does not hold it or
-- its time has passed.

local now = tonumber(redis.call('TIME')[1])
local value = redis.call('GET', KEYS[1])
if not value then
  return 0
end
if redis.call('GET', KEYS[2]) ~= ARGV[1] then
  return 0
end
if redis.call('GET', KEYS[3]) ~= value then
  return 0
end
if now > tonumber(value) then
  return 0
end

local stamp = now + ARGV[2] + 1
if stamp > tonumber(value) then
  local life = string.format('%.0f', (ARGV[2] + 2) * 1000)
  stamp = string.format('%.0f', stamp)
  redis.call('GETSET', KEYS[1], stamp)
  redis.call('SET', KEYS[2], ARGV[1], 'PX', life)
  redis.call('SET', KEYS[3], stamp, 'PX', life)
end
return 1
