-- Extends a lock on one node of a quorum if the token still holds it there. It never shortens a lease.
--
-- KEYS[1] the lock
-- KEYS[2] its fence counter on this node
-- ARGV[1] token
-- ARGV[2] TTL in ms
-- ARGV[3] "mint" to adopt the lock, which raises the counter; or the fence of the lock, to restore it if nobody holds it
-- ARGV[4] with a fence: the TTL of a lock that is restored, in ms
-- ARGV[5] with a fence: until when it may be restored, in µs of TIME
--
-- Returns 0 if nobody holds the lock, 2 if nobody held it and it is restored, -1 if another token holds it. If it is too late
-- to restore it, returns {"late", seconds and µs of TIME}. Otherwise the vote for the fence to adopt, or 1 to renew.

local call, pcall = redis.call, redis.pcall
local holder = call('GET', KEYS[1])
if holder and holder ~= ARGV[1] or not holder and not ARGV[4] then
  local key = KEYS[1]
  -- include writable.lua
  return readonly or holder and -1 or 0
end
local time = call('TIME')
if not holder then
  local latest = ARGV[5]
  -- include late.lua
  if late then return late end
end
local counter
if not holder or ARGV[3] == 'mint' then
  counter = pcall('GET', KEYS[2])
  if type(counter) == 'table' and not string.find(counter.err, 'WRONGTYPE') then
    return counter
  end
  counter = type(counter) ~= 'table' and tonumber(counter or '0')
  if not (counter and counter < 2^47 - 1) then
    return redis.error_reply('ERR the fence counter holds something else')
  end
end
if not holder then
  -- The counter is raised to the fence of the lock and no further. If it were raised by one, as by an acquire, a later
  -- quorum of restored nodes could issue an older fence.
  call('PEXPIRE', KEYS[2], 3600000) -- first: a full Redis accepts SET only after another write
  if counter < tonumber(ARGV[3]) then
    call('SET', KEYS[2], ARGV[3], 'PX', 3600000) -- as in quorum_acquire.lua
  end
  call('SET', KEYS[1], ARGV[1], 'PX', ARGV[4])
  return 2
end
call('PEXPIRE', KEYS[1], string.format('%.0f', math.max(call('PTTL', KEYS[1]), ARGV[2])))
if not counter then
  call('PEXPIRE', KEYS[2], 3600000)
  return 1
end
local fence = math.max(counter + 1, (time[1] - 1767225600) * 250000)
call('SET', KEYS[2], string.format('%.0f', fence), 'PX', 3600000)
return fence
