-- Extends a permit if the token still holds it. It never shortens a lease.
--
-- KEYS    as in semaphore.lua; to renew, only the first
-- ARGV[1] token
-- ARGV[2] TTL in ms
--
-- Returns 0 if the token holds none. Otherwise the new fence to adopt, or 1 to renew.

local token, ttl = ARGV[1], tonumber(ARGV[2])
local ends = call('ZSCORE', permits, token)
if not ends or tonumber(ends) <= now then
  return 0
end
local fence, wrong = 1, nil
if register then
  fence, wrong = mint()
  if not fence then
    return wrong
  end
  adopted(token)
end
hold(token, ttl)
return fence
