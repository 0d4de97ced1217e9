-- Extends a lock on one node of a quorum if the token still holds it there. It never shortens a lease.
--
-- KEYS[1] the lock
-- KEYS[2] its fence counter on this node
-- ARGV[1] token
-- ARGV[2] TTL in ms
-- ARGV[3] set to adopt the lock, which raises the counter
--
-- Returns 0 if nobody holds the lock, -1 if another token does. Otherwise the vote for the fence to adopt, or 1 to
-- renew.

local call, pcall = redis.call, redis.pcall
local holder = call('GET', KEYS[1])
if holder ~= ARGV[1] then
  local key = KEYS[1]
  -- include writable.lua
  return readonly or holder and -1 or 0
end
local counter
if ARGV[3] then
  counter = pcall('GET', KEYS[2])
  if type(counter) == 'table' and not string.find(counter.err, 'WRONGTYPE') then
    return counter
  end
  counter = type(counter) ~= 'table' and tonumber(counter or '0')
  if not (counter and counter < 2^53 - 1) then
    return redis.error_reply('ERR the fence counter holds something else')
  end
end
call('PEXPIRE', KEYS[1], string.format('%.0f', math.max(call('PTTL', KEYS[1]), ARGV[2])))
if not counter then
  call('PEXPIRE', KEYS[2], 3600000) -- as in quorum_acquire.lua
  return 1
end
local fence = math.max(counter + 1, call('TIME')[1] * 1000000)
call('SET', KEYS[2], string.format('%.0f', fence), 'PX', 3600000)
return fence
