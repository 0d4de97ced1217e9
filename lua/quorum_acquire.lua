-- Acquires a lock for a token on one node of a quorum. If another token holds it, it returns the holder. A resend
-- grants it again.
--
-- KEYS[1] the lock
-- KEYS[2] its fence counter on this node
-- KEYS[3] the mark that others want the lock
-- ARGV[1] token
-- ARGV[2] TTL in ms
-- ARGV[3] until when it may create the lock, in µs of TIME
--
-- Too late: {"late", seconds and µs of TIME}.
-- Granted: the vote of this node for the fence.
-- Held by another: {what is left of the holder's TTL in ms, -1 if it has none; the holder}.

local counterMemory = 3600000 -- TTL of the counter after its last use, ms
local wantedMemory = 500 -- TTL of the mark, ms: waiters poll more often

local time, latest, holder = redis.call('TIME'), ARGV[3], redis.call('GET', KEYS[1])
-- include late.lua
if late and holder ~= ARGV[1] then return late end
if holder and holder ~= ARGV[1] then
  local call, pcall, key = redis.call, redis.pcall, KEYS[1]
  -- include writable.lua
  if readonly then return readonly end
  pcall('SET', KEYS[3], '', 'NX', 'PX', wantedMemory)
  return {redis.call('PTTL', KEYS[1]), holder}
end
-- The counter is read before any write: other data stop the script before it changes anything. Lua rounds integers
-- above 2^53, so counter × 64 stays below.
local counter = tonumber(redis.call('GET', KEYS[2]) or '0')
if not (counter and counter < 2^47 - 1) then
  return redis.error_reply('ERR the fence counter holds something else')
end
-- A resend never shortens the lease.
if not holder or redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
end
-- The counter is at least the clock, so fences grow even if it was lost. Whole seconds let nodes with similar clocks
-- vote for the same number.
local fence = math.max(counter + 1, (time[1] - 1767225600) * 250000)
redis.call('SET', KEYS[2], string.format('%.0f', fence), 'PX', counterMemory)
return fence
