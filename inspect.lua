-- Reads who holds a lock, in one moment and without changing anything.
--
-- KEYS[1] the lock
-- KEYS[2] its queue; absent: it has none
--
-- {token or false, what is left of the TTL in ms, how many queue}

return {redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1]),
  KEYS[2] and redis.call('ZCOUNT', KEYS[2], '(0', '+inf') or 0}
