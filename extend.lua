-- Extends a lock if the token still holds it. It never shortens a lease.
--
-- KEYS[1] the lock
-- KEYS[2] to adopt: the fence register; absent: to renew
-- KEYS[3] to adopt: the queue of the lock
-- ARGV[1] token
-- ARGV[2] TTL in ms
--
-- Returns 0 if nobody holds the lock, -1 if another token does. Otherwise the new fence to adopt, or 1 to renew.

local holder = redis.call('GET', KEYS[1])
if holder ~= ARGV[1] then return holder and -1 or 0 end

local fence = 1
if KEYS[2] then -- as in acquire.lua
  fence = redis.pcall('INCR', KEYS[2])
  if type(fence) == 'number' and fence >= 2^53 then
    redis.pcall('DECR', KEYS[2])
    fence = {err = 'overflow'}
  end
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
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return fence
