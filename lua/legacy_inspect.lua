-- Returns who holds a lock, without changing anything.
--
-- KEYS[1] the lock
-- KEYS[2] its owner
-- KEYS[3] its stamp
--
-- Returns {what is left of its time in ms, 0 if it is free; the token, '' if unknown}.

local time = redis.call('TIME')
local now = tonumber(time[1])
local value = redis.call('GET', KEYS[1])
if not value then
  return {0, ''}
end
local till = string.match(value, '^%d+%.?%d*$') and tonumber(value)
if not till then
  return redis.error_reply('ERR the key does not hold a timestamp')
end
if now > till then
  return {0, ''}
end

local left = (math.floor(till) + 1 - now) * 1000 - math.floor(time[2] / 1000)
local token = redis.call('GET', KEYS[2])
if not token or redis.call('GET', KEYS[3]) ~= value then
  token = ''
end
return {math.min(left, 9e12), token}
