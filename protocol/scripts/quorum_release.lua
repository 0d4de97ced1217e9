-- Releases a lock on one node of a quorum if the token still holds it.
--
-- KEYS[1] the lock
-- KEYS[2] the mark of the Locker that was refused; empty: several were
-- ARGV[1] token
-- ARGV[2] the Locker that has held the lock. An acquire of its own may have overtaken its release before
-- ARGV[3] when the time of ARGV[4] begins at the latest, in µs of TIME, with a minus sign if TIME has just been learned
-- ARGV[4] how long the key keeps others out, in ms, as in release.lua; absent: release it
--
-- Returns 0 if the token does not hold the lock, 1 if it was released or is kept, and 2 if it was released and others want it. If
-- ARGV[3] has passed and has no minus sign, it returns {"late", seconds, µs of TIME}.

local holder, keep = redis.call('GET', KEYS[1]), ARGV[4]
if holder ~= ARGV[1] then
local wrote = redis.pcall('ZREM', KEYS[1], '~')
local readonly = type(wrote) == 'table' and string.find(wrote.err, 'READONLY') and wrote
  return readonly or keep and holder == '~' .. ARGV[1] and 1 or 0 -- 1: this is a resend
end
if keep then
  local time, latest = redis.call('TIME'), ARGV[3]
local known = string.sub(latest, 1, 1) == '-'
if known then latest = string.sub(latest, 2) end
local late = time[1] * 1000000 + time[2] > tonumber(latest) and {'late', tonumber(time[1]), tonumber(time[2])}
if late then
  if not known then return late end
  keep = keep - math.ceil((time[1] * 1000000 + time[2] - latest) / 1000)
  keep = keep > 0 and string.format('%.0f', keep) or nil
end
end
if keep then
  redis.call('PEXPIRE', KEYS[1], keep) -- when Redis is full, it accepts SET only after another write
  redis.call('SET', KEYS[1], '~' .. ARGV[1], 'PX', keep)
  return 1
end
local refused = redis.pcall('GET', KEYS[2])
redis.call('DEL', KEYS[1], KEYS[2])
return refused and refused ~= ARGV[2] and 2 or 1
