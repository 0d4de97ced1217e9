-- Returns who holds permits, without changing anything.
--
-- KEYS[1] the permits, as in semaphore.lua
-- KEYS[2] the queue
--
-- Returns {the token whose lease ends first or false, what is left of that lease in ms, the length of the queue, the
-- number of holders}.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local alive = string.format('(%.0f', now)
local low = redis.call('ZRANGE', KEYS[1], 0, 0)
if low[1] and low[1] ~= '' then
  return redis.error_reply('WRONGTYPE ' .. KEYS[1] .. ' is not a semaphore')
end
local first = redis.call('ZRANGEBYSCORE', KEYS[1], alive, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
return {first[1] or false, first[1] and math.ceil((first[2] - now) / 1000) or 0,
  redis.call('ZCOUNT', KEYS[2], '(0', '+inf'), redis.call('ZCOUNT', KEYS[1], alive, '+inf')}
