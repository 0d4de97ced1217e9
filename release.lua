-- Compare and delete: gives a lock back, if the token still holds it.
--
-- KEYS[1] the lock
-- ARGV[1] token
--
-- 1: deleted. 0: the token does not hold it, and whatever is there was left alone.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
return redis.call('DEL', KEYS[1])
