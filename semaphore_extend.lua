-- Extends a permit if the token still holds it. It never shortens a lease.
--
-- KEYS    as in semaphore.lua; to renew, only the first
-- ARGV[1] token
-- ARGV[2] TTL in ms
-- ARGV[3] limit
--
-- Returns 0 if the token holds none. Otherwise the new fence to adopt, or 1 to renew. Refused because of another limit:
-- the error of semaphore_acquire.lua.

-- include semaphore.lua
local token, ttl = ARGV[1], tonumber(ARGV[2])
local ends = leaseEnd(token)
local wrong = check(tonumber(ARGV[3]))
if not ends then return KEYS[2] and wrong or 0 end
if wrong then return wrong end
local answer = 1
if KEYS[2] then
  local fence, _, failed = mint(1)
  if failed then return failed end
  adopted(token)
  answer = fence
end
hold(token, ttl, ends)
return answer
