-- Extends a lock on one node of a quorum if the token still holds it there, and raises the fence counter. It never shortens a
-- lease.
--
-- KEYS[1] the lock
-- KEYS[2] its fence counter on this node
-- ARGV[1] token
-- ARGV[2] TTL in ms
-- ARGV[3] the fence to raise the counter to; or "mint" to adopt the lock: the node votes for a new fence
-- ARGV[4] with a fence: the TTL for which the lock is restored if nobody holds it, in ms; absent: it is not
-- ARGV[5] until when it may be restored, in µs of TIME
--
-- Returns 0 if nobody held the lock, also if it is restored, and -1 if another token holds it. If it is too late to restore it,
-- returns {"late", seconds and µs of TIME}. Otherwise the counter.

local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] or not holder and not ARGV[4] then
local wrote = redis.pcall('ZREM', KEYS[1], '~')
local readonly = type(wrote) == 'table' and string.find(wrote.err, 'READONLY') and wrote
  return readonly or holder and -1 or 0
end
local time, latest = redis.call('TIME'), not holder and ARGV[5] or math.huge
local late = time[1] * 1000000 + time[2] > tonumber(latest) and {'late', tonumber(time[1]), tonumber(time[2])}
if late then return late end
local counter = redis.pcall('GET', KEYS[2])
if type(counter) == 'table' and not string.find(counter.err, 'WRONGTYPE') then return counter end
counter = type(counter) ~= 'table' and tonumber(counter or '0')
if not (counter and counter < 2^47 - 1) then
  return redis.error_reply('ERR the fence counter holds something else')
end
if holder then redis.call('PEXPIRE', KEYS[1], string.format('%.0f', math.max(redis.call('PTTL', KEYS[1]), tonumber(ARGV[2])))) end
if ARGV[3] == 'mint' then
local fence = math.max(counter + 1, (time[1] - 1767225600) * 250000)
redis.call('SET', KEYS[2], string.format('%.0f', fence), 'PX', 3600000)
  return fence
end
-- The counter is raised to the fence of the lock and no further. If it were raised by one, as by an acquire, a later
-- quorum of restored nodes could issue an older fence.
redis.call('PEXPIRE', KEYS[2], 3600000) -- first: a full Redis accepts SET only after another write
if counter < tonumber(ARGV[3]) then
  counter = tonumber(ARGV[3])
  redis.call('SET', KEYS[2], ARGV[3], 'PX', 3600000)
end
if holder then return counter end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[4])
return 0
