-- Releases a lock on one node of a quorum if the token still holds it.
--
-- KEYS[1] the lock
-- KEYS[2] the mark that others want the lock
-- ARGV[1] token
--
-- Returns 0, and changes nothing, if the token does not hold the lock. Returns 1 if it was released, and 2 if others
-- want it.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
return redis.call('DEL', KEYS[1], KEYS[2])
