-- Releases a lock on one node of a quorum if the token still holds it.
--
-- KEYS[1] the lock
-- KEYS[2] the mark that others want the lock
-- ARGV[1] token
-- ARGV[2] when the time of ARGV[3] begins at the latest, in µs of TIME
-- ARGV[3] how long the key keeps others out, in ms, as in release.lua; absent: release it
--
-- Returns 0 if the token does not hold the lock, 1 if it was released or is kept, and 2 if it was released and others want it. If
-- ARGV[2] is 0, it returns {"late", seconds, µs of TIME}.

local holder, keep = redis.call('GET', KEYS[1]), ARGV[3]
if holder ~= ARGV[1] then
  -- include writable.lua
  return readonly or keep and holder == '~' .. ARGV[1] and 1 or 0 -- 1: this is a resend
end
if keep then
  local time, latest = redis.call('TIME'), ARGV[2]
  -- include keep.lua
end
if keep then
  redis.call('PEXPIRE', KEYS[1], keep) -- when Redis is full, it accepts SET only after another write
  redis.call('SET', KEYS[1], '~' .. ARGV[1], 'PX', keep)
  return 1
end
return redis.call('DEL', KEYS[1], KEYS[2])
