-- Returns who holds permits, and who waits, without changing anything.
--
-- KEYS[1] the permits
-- KEYS[2] the queue
--
-- Returns {the token whose lease ends first or false; the waiters, see waiters.lua; what is left of the lease in ms; the length of
-- the queue; the number of holders; the first 100 tokens in the order of their ends, each followed by what is left in ms}. If nobody
-- holds a permit, the tokens are those of permits that are kept after their release, and the number is 0.

local time, zero = redis.call('TIME'), 9e15
local now = time[1] * 1000000 + time[2]
local oldest = tonumber(redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2] or now)
local ends = oldest < 0 and oldest + zero or oldest
if ends < 9e14 or ends > 8e15 then return redis.error_reply('WRONGTYPE ' .. KEYS[1] .. ' is not a semaphore') end
local from = string.format('(%.0f', now)
local holders, less = redis.call('ZCOUNT', KEYS[1], from, '+inf'), 0
local all = redis.call('ZRANGEBYSCORE', KEYS[1], from, '+inf', 'WITHSCORES', 'LIMIT', 0, 100)
if not all[1] then
  less = zero
  all = redis.call('ZRANGEBYSCORE', KEYS[1], string.format('(%.0f', now - zero), '(0', 'WITHSCORES', 'LIMIT', 0, 100)
end
for i = 2, #all, 2 do all[i] = math.min(math.ceil((all[i] + less - now) / 1000), 4e12) end
local waiters, count
waiters, count = redis.call('ZRANGE', KEYS[2], 0, 99, 'WITHSCORES'), redis.call('ZCARD', KEYS[2])
if waiters[1] and string.sub(waiters[1], 1, 1) == '!' then -- a mark, see roll_call.lua and semaphore.lua
  table.remove(waiters, 1)
  table.remove(waiters, 1)
  count = count - 1
end
for i = 2, #waiters, 2 do waiters[i] = math.ceil(math.max(now - waiters[i], 0)) end
return {all[1] or false, waiters, all[2] or 0, count, holders, all}
