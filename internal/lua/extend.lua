-- Extends a lock if the token still holds it. It never shortens a lease.
--
-- KEYS[1] the lock
-- KEYS[2] to adopt: the fence register; absent: to renew
-- ARGV[1] token
-- ARGV[2] TTL in ms
--
-- Returns 0 if nobody holds the lock, -1 if another token does. Otherwise the tick of the fence to adopt, or 1 to renew.

local holder = redis.call('GET', KEYS[1])
if holder ~= ARGV[1] then
  -- include writable.lua
  return readonly or holder and -1 or 0
end
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', math.max(redis.call('PTTL', KEYS[1]), tonumber(ARGV[2]))))
if not KEYS[2] then return 1 end
local time
-- include fence.lua
return failed or tick
