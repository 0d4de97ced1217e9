-- Extends a lock if the token still holds it. It never shortens a lease.
--
-- KEYS[1] the lock
-- KEYS[2] to adopt: the fence register; absent: to renew
-- KEYS[3] to adopt: the queue of the lock
-- ARGV[1] token
-- ARGV[2] TTL in ms
--
-- Returns 0 if nobody holds the lock, -1 if another token does. Otherwise the new fence to adopt, or 1 to renew.

local call, pcall, format = redis.call, redis.pcall, string.format
local holder = call('GET', KEYS[1])
if holder ~= ARGV[1] then return holder and -1 or 0 end

local answer = 1
if KEYS[2] then
  local want, time = 1, nil
  -- include fence.lua
  if failed then return failed end
  pcall('ZREMRANGEBYSCORE', KEYS[3], 0, 0)
  answer = fence
end
if call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then call('PEXPIRE', KEYS[1], ARGV[2]) end
return answer
