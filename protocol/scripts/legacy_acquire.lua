-- Acquires a lock for a token as the documentation of SETNX describes, or returns how long it is still held. A resend
-- grants it again. The numbered steps are those of legacy_setnx.go.
--
-- ARGV[1] token
-- ARGV[2] TTL in s
-- ARGV[3] until when it may create the lock or take it over, in µs of TIME
--
-- Too late: {"late", seconds and µs of TIME}.
-- Granted: 1 if the key was free, 2 if its time had passed, or the token already held it.
-- Held by another: {what is left of the holder's time in ms}.

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
local latest = ARGV[3]
local late = time[1] * 1000000 + time[2] > tonumber(latest) and {'late', tonumber(time[1]), tonumber(time[2])}
if late then return late end
local ends = now + ARGV[2] + 1

-- 1. Take a free key.
if redis.call('SETNX', KEYS[1], string.format('%.0f', ends)) == 1 then
  own(ends)
  return 1
end
-- 2. Read until when it is held.
if odd then return odd end
-- 3. If its time has passed, take it over. In a script nothing comes between GET and GETSET, so no caller can lose here.
if not passed and not ours then return {left} end
if ends > till then own(ends) end -- a resend never shortens the lease
return 2
