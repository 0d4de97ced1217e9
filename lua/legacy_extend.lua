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

local call, pcall = redis.call, redis.pcall
local now, value = tonumber(call('TIME')[1]), call('GET', KEYS[1])
local ours = value and call('GET', KEYS[2]) == ARGV[1] and call('GET', KEYS[3]) == value
if not ours or now > tonumber(value) then
  local key = KEYS[1]
  -- include writable.lua
  return readonly or 0
end

local ends = math.max(now + ARGV[2] + 1, tonumber(value))
local stamp, life = string.format('%.0f', ends), string.format('%.0f', (ends - now + 1) * 1000)
call('GETSET', KEYS[1], stamp)
call('SET', KEYS[2], ARGV[1], 'PX', life)
call('SET', KEYS[3], stamp, 'PX', life)
return 1
