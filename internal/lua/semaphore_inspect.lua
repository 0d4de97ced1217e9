-- Returns who holds permits, and who waits, without changing anything.
--
-- KEYS[1] the permits
-- KEYS[2] the queue
--
-- Returns {the token whose lease ends first or false; the waiters, see waiters.lua; what is left of the lease in ms; the length of
-- the queue; the number of holders; the first 100 tokens in the order of their ends, each followed by what is left in ms}. Permits
-- that are kept after their release are named only if nobody holds one.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local oldest = tonumber(redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2])
if oldest and oldest < 9e14 then return redis.error_reply('WRONGTYPE ' .. KEYS[1] .. ' is not a semaphore') end
local all = redis.call('ZRANGEBYSCORE', KEYS[1], string.format('(%.0f', now), '+inf', 'WITHSCORES')
local token, ends = all[1], all[2]
for i = 1, #all, 2 do
  if string.sub(all[i], 1, 1) ~= '~' then
    token, ends = all[i], all[i + 1]
    break
  end
end
local waiters, count
-- include waiters.lua
local named, members, kept = {}, {}, token and string.sub(token, 1, 1) == '~'
for i = 1, #all, 2 do
  if kept or string.sub(all[i], 1, 1) ~= '~' then table.insert(named, i) end
end
for n = 1, math.min(#named, 100) do
  members[2 * n - 1], members[2 * n] = all[named[n]], math.ceil((all[named[n] + 1] - now) / 1000)
end
return {token or false, waiters, ends and math.ceil((ends - now) / 1000) or 0, count, math.floor(#all / 2), members}
