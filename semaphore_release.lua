-- Releases the permit of a token, if it holds one, and grants all free permits to the longest waiters. With WithMinHold
-- there are two releases, as in release.lua.
--
-- KEYS    as in semaphore.lua
-- ARGV[1] token; empty: none
-- ARGV[2] limit
-- ARGV[3] "cluster" if the reply to PUBLISH does not say whether the process listens; else empty
-- ARGV[4] the entry of the token, to remove it from the queue; absent or empty: it has none
-- ARGV[5] the keeper, as in release.lua; absent: none
-- ARGV[6] how long the keeper keeps the permit, in ms; absent: release it
--
-- Returns 1 if the permit was released, or is kept; 0 if the token held none. Returns -1 if it was released but PUBLISH
-- is forbidden, so that no waiter got it. Refused because of another limit: the error of semaphore_acquire.lua. The entry
-- leaves the queue even so.

local token, limit, entry, keeper, keep = ARGV[1], tonumber(ARGV[2]), ARGV[4] or '', ARGV[5], tonumber(ARGV[6])
if entry ~= '' then
  entry = ARGV[2] .. ' ' .. entry
  pcall('ZREM', queue, entry)
end
if token == '' and not keeper then
  return 0
end

local _, wrong = look(limit) -- an expired permit cannot be released
if wrong then
  return (leaseEnd(token) or keeper and leaseEnd(keeper)) and wrong or 0
end
if keep and leaseEnd(keeper) then
  return 1 -- this is a resend
end
local released = token ~= '' and call('ZREM', permits, token) or 0
if keep then
  if released == 1 then
    hold(keeper, keep)
  end
  return released
end
if keeper then
  released = math.max(released, call('ZREM', permits, keeper))
end
local _, untold = handOn(limit - count(), limit, ARGV[3] == 'cluster')
if call('ZCARD', permits) == 1 then
  call('DEL', permits)
end
return untold and released == 1 and -1 or released
