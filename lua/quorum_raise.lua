-- Raises a fence counter for a lock if the token still holds it.
--
-- KEYS[1] the lock
-- KEYS[2] its fence counter
-- ARGV[1] token
-- ARGV[2] the fence to raise the counter to
--
-- Returns the counter: the fence, or a higher number that it already had. Returns 0 if the token holds no lock.

-- include counter.lua
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  -- include writable.lua
  return readonly or 0
end
redis.call('PEXPIRE', KEYS[2], 3600000) -- as in vote.lua; it fails where the script could not raise the counter
if counter >= tonumber(ARGV[2]) then return counter end
redis.call('SET', KEYS[2], ARGV[2], 'PX', 3600000)
return tonumber(ARGV[2])
