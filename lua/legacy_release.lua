-- Releases a lock if the token still holds it.
--
-- KEYS[1] the lock
-- KEYS[2] its owner
-- KEYS[3] its stamp
-- ARGV[1] token
--
-- Returns 1 if the keys were deleted. Otherwise nothing was changed. Returns 0 if the token owns nothing, and -1 if the
-- token owned the lock, but its time has passed or its key is gone or holds another time.

local call, pcall = redis.call, redis.pcall
local now, value = tonumber(call('TIME')[1]), call('GET', KEYS[1])
local owns = call('GET', KEYS[2]) == ARGV[1]
local ours = owns and value and call('GET', KEYS[3]) == value
-- 4. After its time has passed, the key may be another owner's.
if not ours or now > tonumber(value) then
  local key = KEYS[1]
  -- include writable.lua
  return readonly or owns and -1 or 0
end
call('DEL', KEYS[1], KEYS[2], KEYS[3])
return 1
