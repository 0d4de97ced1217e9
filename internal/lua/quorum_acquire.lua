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
-- include late.lua
if late and holder ~= ARGV[1] then return late end
if holder and holder ~= ARGV[1] then
  -- include writable.lua
  if readonly then return readonly end
  local mark = redis.pcall('GET', KEYS[3])
  mark = (not mark or mark == ARGV[4]) and ARGV[4] or ''
  redis.pcall('SET', KEYS[3], mark, 'PX', 500) -- for 500 ms: waiters poll more often
  return {redis.call('PTTL', KEYS[1]), holder}
end
-- include counter.lua
-- include vote.lua
-- A resend never shortens the lease.
if not holder or redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
end
return fence
