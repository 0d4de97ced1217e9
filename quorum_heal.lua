-- Gives a lock back to a node that lost it, where nobody else has taken it there.
--
-- KEYS[1] the lock
-- KEYS[2] its fence counter
-- ARGV[1] token
-- ARGV[2] TTL, ms
-- ARGV[3] the lock's fence
--
-- 1: set. 0: the key is there, and was left alone.
--
-- The counter is raised to the fence of the lock and no further: an acquire would raise it by one,
-- and a later quorum of healed nodes could then issue an older fence.

local counter = tonumber(redis.call('GET', KEYS[2]) or '0')
if not counter then
  return redis.error_reply('ERR the fence counter holds something else')
end
if redis.call('EXISTS', KEYS[1]) == 1 then
  return 0
end
if counter < tonumber(ARGV[3]) then
  redis.call('SET', KEYS[2], ARGV[3], 'PX', 3600000) -- as quorum_acquire.lua has it
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
