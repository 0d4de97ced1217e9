-- Acquires a lock for a token. If another token holds the lock, it returns the holder and can queue an entry for the
-- token. A resend grants the lock again, with new fences, and keeps the place in the queue.
--
-- KEYS[1] the lock
-- KEYS[2] the fence register, one for all locks
-- KEYS[3] the queue of the lock
-- ARGV[1] token
-- ARGV[2] TTL in ms
-- ARGV[3] how many fences the caller wants, 1 to 64; absent: 1
-- ARGV[4] the entry to queue: "<TTL in ms> <channel> <token>", with a dash before the channel if the process polls;
--         absent or empty: none
-- ARGV[5] how long the caller has waited, in µs
-- ARGV[6] "again" if the entry should already be in the queue
--
-- Granted: the fence as an integer, negative if the token already held the lock. If the caller wants several fences:
-- {the same integer; how many more follow directly behind that fence}.
-- Held by another: {what is left of the holder's TTL in ms, -1 if it has none; the holder}. With an entry also: 1 if the
-- entry is new; 1 if no waiting entry is before it; seconds and µs of TIME; 1 if the entry is first and not new, and the
-- queue handed the lock to the holder.
--
-- The score of an entry is the time since which its caller waits, in µs; 0 once it was handed the lock.

local queueMemory = 60000 -- TTL of the queue after a look, ms: waiters look every few seconds

local call, pcall, format = redis.call, redis.pcall, string.format
local want, queue, entry = ARGV[3] and tonumber(ARGV[3]) or 1, KEYS[3], ARGV[4] ~= '' and ARGV[4]
local holder = entry and call('GET', KEYS[1]) -- if somebody waits, the lock is most likely held
local time
local new = not holder and call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])

if not new then
  holder = holder or call('GET', KEYS[1])
  if holder ~= ARGV[1] then
    if not entry then return {call('PTTL', KEYS[1]), holder} end
    time = call('TIME')
    local try, waited, again = call, ARGV[5], ARGV[6] == 'again'
    -- include queue.lua
    local first, handed = false, false
    if last then
      first = fresh == 1 and (last == '0'
        or score <= tonumber(last) and call('ZCOUNT', queue, '(0', '(' .. format('%.0f', score)) == 0)
    else
      local heads = call('ZRANGE', queue, 0, 1, 'WITHSCORES')
      handed = heads[2] == '0'
      first = heads[handed and 3 or 1] == entry
      handed = handed and first and string.match(heads[1], '^%d+ %S+ (.*)$') == holder
    end
    if first or again or time[2] % 16 == 0 then call('PEXPIRE', queue, queueMemory) end
    return {call('PTTL', KEYS[1]), holder, fresh, first and 1 or 0,
      tonumber(time[1]), tonumber(time[2]), handed and 1 or 0}
  end
  -- A resend never shortens the lease.
  if call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then call('PEXPIRE', KEYS[1], ARGV[2]) end
  pcall('ZREMRANGEBYSCORE', queue, 0, 0) -- a lock that was handed to a waiter is now also held by this call
end
if entry then pcall('ZREM', queue, entry) end -- a key of another type counts as no queue

-- include fence.lua
if failed then
  if new then call('DEL', KEYS[1]) end
  return failed
end
fence = new and fence or -fence
return want > 1 and {fence, more} or fence
