-- Compare and delete, on one node of a quorum: gives a lock back, if the token still holds it.
--
-- KEYS[1] the lock
-- KEYS[2] the mark of those who wanted it meanwhile
-- ARGV[1] token
--
-- 0: the token does not hold it, and whatever is there was left alone. 1: released. 2: released, and others
-- want it.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
return redis.call('DEL', KEYS[1], KEYS[2])
