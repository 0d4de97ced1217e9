-- Makes a lock last longer, if the token still holds it. It never shortens a lease.
--
-- KEYS[1] the lock
-- KEYS[2] its fence counter; absent: it has none
-- ARGV[1] token
-- ARGV[2] TTL, ms
--
-- 1: it lasts for the TTL or longer. 0: the token does not hold it.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
local wrote = 0
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
  wrote = redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
if KEYS[2] then
  wrote = wrote + redis.call('PEXPIRE', KEYS[2], 86400000) -- as acquire.lua has it
end
if wrote == 0 then
  redis.call('SETRANGE', KEYS[1], 0, ARGV[1]) -- for WAIT, as in acquire.lua
end
return 1
