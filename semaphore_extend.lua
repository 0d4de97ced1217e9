-- Makes a permit last longer, if the token still holds it. It never shortens a lease, but where it is told to.
--
-- KEYS    as semaphore.lua has them; the last two are absent to renew
-- ARGV[1] token
-- ARGV[2] TTL, ms
-- ARGV[3] set: the permit lasts for the TTL and no longer
--
-- 0: the token has none. Else it lasts for the TTL or longer: the new fence to adopt, 1 to renew.

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
if ARGV[3] then
  call('ZADD', permits, format('%.0f', now + ttl * 1000), token)
end
hold(token, ttl)
return fence
