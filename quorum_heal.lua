-- Restores a lock on a node that has lost it, unless the key exists there.
--
-- KEYS[1] the lock
-- KEYS[2] its fence counter
-- ARGV[1] token
-- ARGV[2] TTL in ms
-- ARGV[3] the fence of the lock
--
-- Returns 1 if the lock was restored, 0 if the key exists.
--
-- The counter is raised to the fence of the lock and no further. If it were raised by one, as by an acquire, a later
-- quorum of healed nodes could issue an older fence.

local counter = tonumber(redis.call('GET', KEYS[2]) or '0')
if not (counter and counter < 2^53 - 1) then
  return redis.error_reply('ERR the fence counter holds something else')
end
if redis.call('EXISTS', KEYS[1]) == 1 then
  return 0
end
if counter < tonumber(ARGV[3]) then
  redis.call('SET', KEYS[2], ARGV[3], 'PX', 3600000) -- as in quorum_acquire.lua
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
