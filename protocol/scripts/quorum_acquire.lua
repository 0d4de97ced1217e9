-- Acquires a lock for a token on one node of a quorum. If another token holds it, it returns the holder. A resend
-- grants it again.
--
-- KEYS[1] the lock
-- KEYS[2] its fence counter on this node
-- KEYS[3] the mark of the Locker that was refused; empty: several were
-- ARGV[1] token
-- ARGV[2] TTL in ms
-- ARGV[3] until when it may create the lock, in µs of TIME
-- ARGV[4] the Locker that asks
--
-- Too late: {"late", seconds and µs of TIME}.
-- Granted: the vote of this node for the fence.
-- Held by another: {what is left of the holder's TTL in ms, -1 if it has none; the holder}.

local time, latest, holder = redis.call('TIME'), ARGV[3], redis.call('GET', KEYS[1])
local late = time[1] * 1000000 + time[2] > tonumber(latest) and {'late', tonumber(time[1]), tonumber(time[2])}
if late and holder ~= ARGV[1] then return late end
if holder and holder ~= ARGV[1] then
local wrote = redis.pcall('ZREM', KEYS[1], '~')
local readonly = type(wrote) == 'table' and string.find(wrote.err, 'READONLY') and wrote
  if readonly then return readonly end
  local mark = redis.pcall('GET', KEYS[3])
  mark = (not mark or mark == ARGV[4]) and ARGV[4] or ''
  redis.pcall('SET', KEYS[3], mark, 'PX', 500) -- for 500 ms: waiters poll more often
  return {redis.call('PTTL', KEYS[1]), holder}
end
local counter = redis.pcall('GET', KEYS[2])
if type(counter) == 'table' and not string.find(counter.err, 'WRONGTYPE') then return counter end
counter = type(counter) ~= 'table' and tonumber(counter or '0')
if not (counter and counter < 2^47 - 1) then
  return redis.error_reply('ERR the fence counter holds something else')
end
local fence = math.max(counter + 1, (time[1] - 1767225600) * 250000)
redis.call('SET', KEYS[2], string.format('%.0f', fence), 'PX', 3600000)
-- A resend never shortens the lease.
if not holder or redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
end
return fence
