-- Reads who holds a lock, in one moment and without changing anything.
--
-- KEYS[1] the lock
-- KEYS[2] its fence counter; absent: not asked for
-- KEYS[3] its queue; absent: not asked for
--
-- {token or false, what is left of the TTL in ms, the counter or false, how many queue}

return {redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1]),
  KEYS[2] and redis.call('GET', KEYS[2]) or false, KEYS[3] and redis.call('ZCARD', KEYS[3]) or 0}
