-- Makes a lock last longer, if the token still holds it. It never shortens a lease.
--
-- KEYS[1] the lock
-- ARGV[1] token
-- ARGV[2] TTL, ms
--
-- 1: it lasts for the TTL or longer. 0: the token does not hold it.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 1
