-- Extends a lock if the token still holds it. It never shortens a lease.
--
-- KEYS[1] the lock
-- KEYS[2] to adopt: the fence register; absent: to renew
-- ARGV[1] token
-- ARGV[2] TTL in ms
--
-- Returns 0 if nobody holds the lock, -1 if another token does. Otherwise the tick of the fence to adopt, or 1 to renew.

local holder = redis.call('GET', KEYS[1])
if holder ~= ARGV[1] then
local wrote = redis.pcall('ZREM', KEYS[1], '~')
local readonly = type(wrote) == 'table' and string.find(wrote.err, 'READONLY') and wrote
  return readonly or holder and -1 or 0
end
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', math.max(redis.call('PTTL', KEYS[1]), tonumber(ARGV[2]))))
if not KEYS[2] then return 1 end
local time
local registerMemory = '86400000' -- TTL of the register after the clock has set it, ms
local slack = 2500 -- how far the register may lag behind the clock, ticks

local tick, failed = redis.pcall('INCR', KEYS[2]), nil
if type(tick) == 'number' and tick < 2^47 then
  time = time or redis.call('TIME')
  local now = (time[1] - 1767225600) * 250000 + math.floor(time[2] / 4)
  if tick < now - slack or tick == 1 then
    tick = math.max(now, 1)
    redis.call('SET', KEYS[2], string.format('%.0f', tick), 'PX', registerMemory)
  end
else
  failed = type(tick) == 'number' and {err = 'overflow'} or tick
  if type(tick) == 'number' then redis.pcall('INCRBY', KEYS[2], -1) end -- it is no register, so it stays as it was
  tick = nil
  local why = failed.err
  if string.find(why, 'WRONGTYPE') or string.find(why, 'integer') or string.find(why, 'overflow') then
    failed = redis.error_reply('ERR the fence register ' .. KEYS[2]
      .. ' holds something else: delete it, or use WithKeyPrefix')
  end
end
return failed or tick
