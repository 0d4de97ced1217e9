-- Acquires a lock for a token. If another token holds the lock, it returns the holder and can queue an entry for the
-- token. A resend grants the lock again, with a new fence, and keeps the place in the queue.
--
-- KEYS[1] the lock
-- KEYS[2] the fence register, one for all locks
-- KEYS[3] the queue of the lock: a sorted set of entries, scored by the time since which their lines wait, in µs
-- ARGV[1] token
-- ARGV[2] TTL in ms
-- ARGV[3] until when it may create the lock or an entry, in µs of TIME
-- ARGV[4] the entry to queue: "<claim in ms> <channel> <token>", with a dash before the channel if PUBSUB NUMSUB does not
--         say whether the process listens; absent: none
-- ARGV[5] how long the line has waited, in µs
-- ARGV[6] "again" if the entry should already be in the queue
--
-- Too late: {"late", seconds and µs of TIME}.
-- Granted: the tick of the fence, with a minus if the key was free and the entry was not in the queue "again": it was skipped.
-- Held by another: {what is left of the holder's TTL in ms, -1 if it has none; the holder}. With an entry also: 1 if the
-- entry is new; 1 if it is the first; seconds and µs of TIME.

local latest, entry = ARGV[3], ARGV[4]
if entry then redis.pcall('ZREM', KEYS[3], '~') end -- changes nothing, but behind a write a full Redis accepts the others
local time = redis.call('TIME')
-- include late.lua
local holder = (entry or late) and redis.call('GET', KEYS[1]) -- if somebody waits, the lock is most likely held
if late and holder ~= ARGV[1] then return late end
local new = not holder and redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])

if not new then
  holder = holder or redis.call('GET', KEYS[1])
  if holder ~= ARGV[1] then
    if not entry then return {redis.call('PTTL', KEYS[1]), holder} end
    local try, waited, again = redis.call, ARGV[5], ARGV[6] == 'again'
    -- include queue.lua
    local first = redis.call('ZRANGE', KEYS[3], 0, 0)[1] == entry
    return {redis.call('PTTL', KEYS[1]), holder, fresh, first and 1 or 0, tonumber(time[1]), tonumber(time[2])}
  end
  -- A resend never shortens the lease, and always writes.
  redis.call('PEXPIRE', KEYS[1], string.format('%.0f', math.max(redis.call('PTTL', KEYS[1]), tonumber(ARGV[2]))))
end
local gone = entry and redis.pcall('ZREM', KEYS[3], entry) == 0 -- a key of another type counts as no queue

-- include fence.lua
if failed then
  if new then redis.call('DEL', KEYS[1]) end
  return failed
end
return new and gone and ARGV[6] and -tick or tick
