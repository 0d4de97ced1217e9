-- Takes a lock for a token as the documentation of SETNX has it, or says how long its holder still
-- has. Sent again it grants again. The numbers are the page's, see legacy_setnx.go.
--
-- KEYS[1] the lock: Unix seconds, no TTL
-- KEYS[2] its owner: a token
-- KEYS[3] its stamp: the time that the owner wrote last
-- ARGV[1] token
-- ARGV[2] TTL, s
-- ARGV[3] the time by the caller's clock, Unix ms; empty: by this server's
--
-- Granted: 1 where the key was free, 2 over a time that has passed, 3 once more.
-- Held by another: {what is left of the holder's time in ms}.

local ms = tonumber(ARGV[3])
if not ms then
  local time = redis.call('TIME')
  ms = time[1] * 1000 + math.floor(time[2] / 1000)
end
local now = math.floor(ms / 1000)
local stamp = string.format('%.0f', now + ARGV[2] + 1)

-- All reads of the companions come before any write: a key of another type stops the script and
-- leaves nothing. They outlive the time that they belong to.
local owner = redis.call('GET', KEYS[2])
local owned = redis.call('GET', KEYS[3])
local function own()
  local life = string.format('%.0f', (ARGV[2] + 2) * 1000)
  redis.call('SET', KEYS[2], ARGV[1], 'PX', life)
  redis.call('SET', KEYS[3], stamp, 'PX', life)
end

-- 1. A free key is taken.
if redis.call('SETNX', KEYS[1], stamp) == 1 then
  own()
  return 1
end

-- 2. A taken one tells until when.
local value = redis.call('GET', KEYS[1])
local till = string.match(value, '^%d+%.?%d*$') and tonumber(value)
if not till then
  return redis.error_reply('ERR the key does not hold a timestamp')
end
if now > till then
  -- 3. Its time has passed. Nothing can come between GET and GETSET here, so that what GETSET
  -- returns is what GET did, and a loser does not get this far.
  redis.call('GETSET', KEYS[1], stamp)
  own()
  return 2
end

-- Its time has not passed: it is held, and by this token only if the value is what it wrote last.
local left = (math.floor(till) + 1) * 1000 - ms
local refusal = {math.min(left, 9e12)}
if owner ~= ARGV[1] then
  return refusal
end
if owned ~= value then
  return refusal
end
-- A lease is never shortened by an acquire that comes again.
if tonumber(stamp) > till then
  redis.call('GETSET', KEYS[1], stamp)
  own()
end
return 3
