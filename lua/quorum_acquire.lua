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

local call, pcall, key = redis.call, redis.pcall, KEYS[1]
local time, latest, holder = call('TIME'), ARGV[3], call('GET', key)
-- include late.lua
if late and holder ~= ARGV[1] then return late end
if holder and holder ~= ARGV[1] then
  -- include writable.lua
  if readonly then return readonly end
  pcall('SET', KEYS[3], '', 'NX', 'PX', 500) -- for 500 ms: waiters poll more often
  return {call('PTTL', key), holder}
end
-- include counter.lua
-- A resend never shortens the lease.
if not holder or call('PTTL', key) < tonumber(ARGV[2]) then
  call('SET', key, ARGV[1], 'PX', ARGV[2])
end
-- include vote.lua
return fence
