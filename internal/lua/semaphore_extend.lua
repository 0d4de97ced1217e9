-- Extends a permit if the token still holds it. It never shortens a lease.
--
-- KEYS and ARGV are those of extend.lua. It replies as that does, but never -1.

-- include semaphore.lua
prove()
if not leaseEnd(ARGV[1]) then return 0 end
hold(ARGV[1], tonumber(ARGV[2]))
if not KEYS[2] then return 1 end
local tick, failed = mint()
return failed or tick
