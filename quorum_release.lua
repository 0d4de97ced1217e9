-- Releases a lock on one node of a quorum if the token still holds it.
--
-- KEYS[1] the lock
-- KEYS[2] the mark that others want the lock
-- ARGV[1] token; empty: none
-- ARGV[2] the keeper, as in release.lua; absent: none
-- ARGV[3] how long the keeper keeps the key, in ms; absent: release it
--
-- Returns 0, and changes nothing, if the token does not hold the lock. Returns 1 if it was released or is kept, and 2
-- if it was released and others want it.

local holder, keeper, keep = redis.call('GET', KEYS[1]), ARGV[2], ARGV[3]
local ours = holder == ARGV[1] and holder ~= ''
if keep then
  if ours then
    redis.call('PEXPIRE', KEYS[1], keep) -- when Redis is full, it accepts SET only after another write
    redis.call('SET', KEYS[1], keeper, 'PX', keep)
    return 1
  end
  return holder == keeper and 1 or 0 -- 1: this is a resend
end
if not ours and (not keeper or holder ~= keeper) then
  return 0
end
return redis.call('DEL', KEYS[1], KEYS[2])
