-- Returns who holds a lock, without changing anything.
--
-- KEYS[1] the lock
-- KEYS[2] its owner
-- KEYS[3] its stamp
-- ARGV[1] the time of the caller's clock, Unix ms; empty: use the clock of this server
--
-- Returns {what is left of its time in ms, 0 if it is free; the token, '' if unknown}.

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
