-- Returns who holds a lock, without changing anything.
--
-- KEYS[1] the lock
-- KEYS[2] its queue; absent: it has none
--
-- Returns {the token or false, what is left of its TTL in ms, the length of the queue}.

return {redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1]), KEYS[2] and redis.call('ZCARD', KEYS[2]) or 0}
