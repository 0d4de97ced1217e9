-- Reads the fence counter of one node of a quorum, KEYS[2]. A script includes this text before any write, so that other data stop
-- it before it changes anything.
--
-- Declares  counter. Lua rounds integers above 2^53, so counter × 64 stays below.

local counter = redis.pcall('GET', KEYS[2])
if type(counter) == 'table' and not string.find(counter.err, 'WRONGTYPE') then return counter end
counter = type(counter) ~= 'table' and tonumber(counter or '0')
if not (counter and counter < 2^47 - 1) then
  return redis.error_reply('ERR the fence counter holds something else')
end
