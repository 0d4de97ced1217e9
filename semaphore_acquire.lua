-- Acquires a permit for a token. Free permits go to earlier waiters first. If none is left, it returns a holder and can
-- queue an entry for the token. A resend grants the permit again, with new fences, and keeps the place in the queue.
--
-- KEYS    as in semaphore.lua
-- ARGV[1] token
-- ARGV[2] TTL in ms
-- ARGV[3] limit
-- ARGV[4] "cluster" if the reply to PUBLISH does not say whether the process listens; else empty
-- ARGV[5] how many fences the caller wants, 1 to 64; absent: 1
-- ARGV[6] the entry to queue; absent or empty: none
-- ARGV[7] how long the caller has waited, in µs
-- ARGV[8] "again" if the entry should already be in the queue
--
-- Granted: as in acquire.lua.
-- Refused: {what is left in ms of the lease that ends first; its holder}. With an entry also: 1 if the entry is new;
-- 1 if no waiting entry is before it; seconds and µs of TIME.
-- Refused because the holders, or the waiters if nobody holds a permit, have another limit: the error
-- "LIMIT <their limit>".

-- include semaphore.lua
local token, ttl, limit, want = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[5] or 1)
local entry = given(6) and ARGV[3] .. ' ' .. ARGV[6]
local held, wrong = look(limit)
if wrong then return wrong end
local had = leaseEnd(token)
local free = limit - held
if not had and free > 0 then
  local left = handOn(free, limit, ARGV[4] == 'cluster', entry)
  had = left < free and leaseEnd(token) -- the token may have queued before
  free = left
end

if not had and free <= 0 then
  local holder, ends = unpack(call('ZRANGE', permits, 1, 1, 'WITHSCORES'))
  local left = ends and math.ceil((ends - now) / 1000) or 0 -- miniredis expires keys while a script runs
  if not entry then return {left, holder} end
  local fresh = enqueue(call, entry, ARGV[7], ARGV[8] == 'again')
  return {left, holder or false, fresh, first() == entry and 1 or 0, tonumber(time[1]), tonumber(time[2])}
end

if had then adopted(token) end -- a full Redis refuses INCR, but not behind another write of the script
local fence, more, failed = mint(limit == 1 and want or 1)
if failed then return failed end
hold(token, ttl, had, free == limit and limit)
if entry then pcall('ZREM', queue, entry) end
fence = had and -fence or fence
return want > 1 and {fence, more} or fence
