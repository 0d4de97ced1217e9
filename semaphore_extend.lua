-- Extends a permit if the token still holds it. It never shortens a lease.
--
-- KEYS    as in semaphore.lua; to renew, only the first
-- ARGV[1] token
-- ARGV[2] TTL in ms
-- ARGV[3] limit
--
-- Returns 0 if the token holds none. Otherwise the new fence to adopt, or 1 to renew. Refused because of another limit:
-- the error of semaphore_acquire.lua.

local token, ttl = ARGV[1], tonumber(ARGV[2])
local ends = leaseEnd(token)
local wrong = check(tonumber(ARGV[3]))
if not ends then
  return register and wrong or 0
end
if wrong then
  return wrong
end
local fence = 1
if register then
  fence, wrong = mint(1)
  if not fence then
    return wrong
  end
  adopted(token)
end
hold(token, ttl, ends)
return fence
