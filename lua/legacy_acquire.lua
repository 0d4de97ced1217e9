-- Acquires a lock for a token as the documentation of SETNX describes, or returns how long it is still held. A resend
-- grants it again. The numbered steps are those of legacy_setnx.go.
--
-- KEYS[1] the lock: Unix seconds, no TTL
-- KEYS[2] its owner: a token
-- KEYS[3] its stamp: the time that the owner wrote last
-- ARGV[1] token
-- ARGV[2] TTL in s
-- ARGV[3] until when it may create the lock or take it over, in µs of TIME
--
-- Too late: {"late", seconds and µs of TIME}.
-- Granted: 1 if the key was free, 2 if its time had passed, or the token already held it.
-- Held by another: {what is left of the holder's time in ms}.

local time, latest = redis.call('TIME'), ARGV[3]
-- include late.lua
if late then return late end
local now = tonumber(time[1])
local stamp = string.format('%.0f', now + ARGV[2] + 1)

-- The companions are read before any write, so that a key of another type stops the script before it changes
-- anything. They outlive their time.
local owner = redis.call('GET', KEYS[2])
local owned = redis.call('GET', KEYS[3])
local function own()
  local life = string.format('%.0f', (ARGV[2] + 2) * 1000)
  redis.call('SET', KEYS[2], ARGV[1], 'PX', life)
  redis.call('SET', KEYS[3], stamp, 'PX', life)
end

-- 1. Take a free key.
if redis.call('SETNX', KEYS[1], stamp) == 1 then
  own()
  return 1
end

-- 2. Read until when it is held.
local value = redis.call('GET', KEYS[1])
local till = string.match(value, '^%d+%.?%d*$') and tonumber(value)
if not till then
  return redis.error_reply('ERR the key does not hold a timestamp')
end
if now > till then
  -- 3. Its time has passed. In a script nothing comes between GET and GETSET, so no caller can lose here.
  redis.call('GETSET', KEYS[1], stamp)
  own()
  return 2
end

-- It is held. This token holds it if it is the owner and the value is what the owner wrote last.
local left = (math.floor(till) + 1 - now) * 1000 - math.floor(time[2] / 1000)
local refusal = {math.min(left, 9e12)}
if owner ~= ARGV[1] then
  return refusal
end
if owned ~= value then
  return refusal
end
-- A resend never shortens the lease.
if tonumber(stamp) > till then
  redis.call('GETSET', KEYS[1], stamp)
  own()
end
return 2
