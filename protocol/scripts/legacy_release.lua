-- Releases a lock if the token still holds it.
--
-- ARGV[1] token
--
-- Returns 1 if the keys were deleted, 0 if the token owns nothing, and -1 if the token owned the lock, but its time has passed or
-- its key is gone or holds another time.

local time, value = redis.call('TIME'), redis.call('GET', KEYS[1])
local owner, stamp = redis.call('GET', KEYS[2]), redis.call('GET', KEYS[3])
local now = tonumber(time[1])
local till = value and #value < 64 and string.match(value, '^%d+%.?%d*$') and tonumber(value)
local odd = value and not till and redis.error_reply('ERR the key does not hold a timestamp')
local passed = till and now > till
local left = till and math.min(math.floor(till) - now + 1, 9000000000) * 1000 - math.floor(time[2] / 1000) -- ms

-- The token holds the lock if it is the owner, and the value is what the owner wrote last.
local ours = till and not passed and stamp == value and owner == ARGV[1]

-- own has the token hold the lock until ends. The companions outlive that time.
local function own(ends)
  local stamp, life = string.format('%.0f', ends), string.format('%.0f', (ends - now + 1) * 1000)
  redis.call('GETSET', KEYS[1], stamp)
  redis.call('SET', KEYS[2], ARGV[1], 'PX', life)
  redis.call('SET', KEYS[3], stamp, 'PX', life)
end
-- 4. After its time has passed, the key may be another owner's.
if not ours then
local wrote = redis.pcall('ZREM', KEYS[1], '~')
local readonly = type(wrote) == 'table' and string.find(wrote.err, 'READONLY') and wrote
  return readonly or owner == ARGV[1] and -1 or 0
end
redis.call('DEL', KEYS[1], KEYS[2], KEYS[3])
return 1
