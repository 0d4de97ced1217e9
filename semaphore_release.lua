-- Releases the permit of a token, if it holds one, and grants all free permits to the longest waiters. With WithMinHold
-- there are two releases, as in release.lua.
--
-- KEYS    as in semaphore.lua
-- ARGV[1] token; empty: none
-- ARGV[2] limit
-- ARGV[3] "cluster" if the reply to PUBLISH does not say whether the process listens; else empty
-- ARGV[4] the entry of the token, to remove it from the queue; absent or empty: none
-- ARGV[5] the entry to queue for the next caller in line; absent or empty: none
-- ARGV[6] how long that caller has waited, in µs
-- ARGV[7] the keeper, as in release.lua; absent or empty: none
-- ARGV[8] how long the keeper keeps the permit, in ms; absent or empty: release it
--
-- Replies as release.lua does; 0 if the token held no permit. Refused because of another limit: the error of
-- semaphore_acquire.lua. The entry of the token leaves the queue even so.

-- include semaphore.lua
local token, limit, keeper, keep = given(1), tonumber(ARGV[2]), given(7), tonumber(ARGV[8])
local nextEntry = given(5) and ARGV[2] .. ' ' .. ARGV[5]
if given(4) then pcall('ZREM', queue, ARGV[2] .. ' ' .. ARGV[4]) end
if not token and not keeper then return 0 end

local _, wrong = look(limit) -- an expired permit cannot be released
if wrong then return (leaseEnd(token) or leaseEnd(keeper)) and wrong or 0 end
if keep and leaseEnd(keeper) then return 1 end -- this is a resend
local released = token and call('ZREM', permits, token) or 0
if keep then
  if released == 1 then hold(keeper, keep) end
  return released
end
if keeper then released = math.max(released, call('ZREM', permits, keeper)) end
if nextEntry and released == 1 then enqueue(pcall, nextEntry, ARGV[6]) end
local _, untold, granted = handOn(limit - count(), limit, ARGV[3] == 'cluster')
if call('ZCARD', permits) == 1 then call('DEL', permits) end
if released == 0 then return 0 end
local answer = untold and -1 or 1
return nextEntry and {answer, tonumber(time[1]), tonumber(time[2]), unpack(granted[nextEntry] or {})} or answer
