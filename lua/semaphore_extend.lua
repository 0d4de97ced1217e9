-- Extends a permit if the token still holds it. It never shortens a lease.
--
-- KEYS[1] the permits
-- KEYS[2] to adopt: the fence register; absent: to renew
-- ARGV[1] token
-- ARGV[2] TTL in ms
--
-- Returns 0 if the token holds none. Otherwise the tick of the fence to adopt, or 1 to renew.

-- include semaphore.lua
prove()
if not leaseEnd(ARGV[1]) then return 0 end
hold(ARGV[1], tonumber(ARGV[2]))
if not KEYS[2] then return 1 end
local tick, failed = mint()
return failed or tick
