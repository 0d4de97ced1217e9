-- Extends a lock if the token still holds it. It never shortens a lease, and never restores a missing key.
--
-- ARGV[1] token
-- ARGV[2] TTL in s
--
-- Returns 1, or 0 if the token does not hold the lock or its time has passed.

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
if not ours then
local wrote = redis.pcall('ZREM', KEYS[1], '~')
local readonly = type(wrote) == 'table' and string.find(wrote.err, 'READONLY') and wrote
  return readonly or 0
end
redis.pcall('ZREM', KEYS[1], '~') -- changes nothing, but behind a write a full Redis accepts the others
own(math.max(now + ARGV[2] + 1, till))
return 1
