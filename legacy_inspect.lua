-- Reads who holds a lock, in one moment and without changing anything.
--
-- KEYS[1] the lock
-- KEYS[2] its owner
-- KEYS[3] its stamp
-- ARGV[1] the time by the caller's clock, Unix ms; empty: by this server's
--
-- {what is left of its time in ms, the token or '' where it is not known}. It is free, or its time
-- has passed, where nothing is left.

local ms = tonumber(ARGV[1])
if not ms then
  local time = redis.call('TIME')
  ms = time[1] * 1000 + math.floor(time[2] / 1000)
end
local value = redis.call('GET', KEYS[1])
if not value then
  return {0, ''}
end
local till = string.match(value, '^%d+%.?%d*$') and tonumber(value)
if not till then
  return redis.error_reply('ERR the key does not hold a timestamp')
end
if math.floor(ms / 1000) > till then
  return {0, ''}
end

local left = (math.floor(till) + 1) * 1000 - ms
local token = redis.call('GET', KEYS[2])
if not token or redis.call('GET', KEYS[3]) ~= value then
  token = ''
end
return {math.min(left, 9e12), token}
