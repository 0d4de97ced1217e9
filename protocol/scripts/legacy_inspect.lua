-- Returns who holds a lock, without changing anything, as inspect.lua does: {the token, '' if it is unknown, or false if the lock is
-- free; {}; what is left of its time in ms; 0}.

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
if odd then return odd end
if not till or passed then return {false, {}, 0, 0} end
return {stamp == value and owner or '', {}, left, 0}
