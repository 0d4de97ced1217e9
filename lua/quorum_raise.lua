-- Raises a fence counter for a lock if the token still holds it.
--
-- KEYS[1] the lock
-- KEYS[2] its fence counter
-- ARGV[1] token
-- ARGV[2] the fence to raise the counter to
--
-- Returns the counter: the fence, or a higher number that it already had. Returns 0 if the token holds no lock.

local counter = tonumber(redis.call('GET', KEYS[2]) or '0')
if not (counter and counter < 2^47 - 1) then
  return redis.error_reply('ERR the fence counter holds something else')
end
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  local pcall, key = redis.pcall, KEYS[1]
  -- include writable.lua
  return readonly or 0
end
local fence = tonumber(ARGV[2])
if counter < fence then
  redis.call('SET', KEYS[2], ARGV[2], 'PX', 3600000) -- as in quorum_acquire.lua
  return fence
end
redis.call('PEXPIRE', KEYS[2], 3600000) -- fails where the script could not have raised it
return counter
