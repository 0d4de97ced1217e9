-- Reads who holds permits, in one moment and without changing anything.
--
-- KEYS[1] the permits, as semaphore.lua has them
-- KEYS[2] the queue
--
-- {the token whose lease ends first or false, what is left of that in ms, how many queue, how many hold a permit}

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
