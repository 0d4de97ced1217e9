-- Acquires a lock for a token. If another token holds the lock, it returns the holder and can queue an entry for the
-- token. A resend grants the lock again, with a new fence, and keeps the place in the queue.
--
-- KEYS[1] the lock
-- KEYS[2] the fence register, one for all locks
-- KEYS[3] the queue of the lock: a sorted set of entries, scored by the time since which their lines wait, in µs
-- ARGV[1] token
-- ARGV[2] TTL in ms
-- ARGV[3] the entry to queue: "<claim in ms> <channel> <token>", with a dash before the channel if PUBSUB NUMSUB does not
--         say whether the process listens; absent: none
-- ARGV[4] how long the line has waited, in µs
-- ARGV[5] "again" if the entry should already be in the queue
--
-- Granted: the tick of the fence, negative if the token already held the lock.
-- Held by another: {what is left of the holder's TTL in ms, -1 if it has none; the holder}. With an entry also: 1 if the
-- entry is new; 1 if it is the first; seconds and µs of TIME.

local call, pcall, format = redis.call, redis.pcall, string.format
local queue, entry = KEYS[3], ARGV[3]
if entry then pcall('ZREM', queue, '~') end -- changes nothing, but behind a write a full Redis accepts the others
local holder = entry and call('GET', KEYS[1]) -- if somebody waits, the lock is most likely held
local time
local new = not holder and call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])

if not new then
  holder = holder or call('GET', KEYS[1])
  if holder ~= ARGV[1] then
    if not entry then return {call('PTTL', KEYS[1]), holder} end
    time = call('TIME')
    local try, waited, again = call, ARGV[4], ARGV[5] == 'again'
    -- include queue.lua
    local first = call('ZRANGE', queue, 0, 0)[1] == entry
    return {call('PTTL', KEYS[1]), holder, fresh, first and 1 or 0, tonumber(time[1]), tonumber(time[2])}
  end
  -- A resend never shortens the lease, and always writes.
  call('PEXPIRE', KEYS[1], format('%.0f', math.max(call('PTTL', KEYS[1]), ARGV[2])))
end
if entry then pcall('ZREM', queue, entry) end -- a key of another type counts as no queue

-- include fence.lua
if failed then
  if new then call('DEL', KEYS[1]) end
  return failed
end
return new and tick or -tick
