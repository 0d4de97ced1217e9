-- Makes a lock last longer, if the token still holds it. It never shortens a lease, but where it is told to.
--
-- KEYS[1] the lock
-- KEYS[2] the fence register, to adopt the lock; absent: to renew it
-- KEYS[3] the lock's queue, likewise
-- ARGV[1] token
-- ARGV[2] TTL, ms
-- ARGV[3] set: the lock lasts for the TTL and no longer
--
-- 0: nobody holds it. -1: another token does. Else it lasts for the TTL or longer: the new fence to adopt, 1 to
-- renew.

local holder = redis.call('GET', KEYS[1])
if holder ~= ARGV[1] then
  return holder and -1 or 0
end

local fence = 1
if KEYS[2] then -- as acquire.lua has it
  fence = redis.pcall('INCR', KEYS[2])
  if type(fence) == 'table' then
    if string.find(fence.err, 'WRONGTYPE') or string.find(fence.err, 'integer') or string.find(fence.err, 'overflow') then
      return redis.error_reply('ERR the fence register ' .. KEYS[2]
        .. ' holds something else: delete it, or use WithKeyPrefix')
    end
    return fence
  end
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  if fence < now - 10000 then
    fence = now
    redis.call('SET', KEYS[2], string.format('%.0f', fence), 'PX', 86400000)
  end
  redis.pcall('ZREMRANGEBYSCORE', KEYS[3], 0, 0)
end
if ARGV[3] or redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return fence
