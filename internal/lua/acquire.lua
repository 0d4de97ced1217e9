-- Acquires a lock for a token. If another token holds the lock, it returns the holder and can queue an entry for the
-- token. A resend grants the lock again, with a new fence, and keeps the place in the queue. If the lock is free
-- although others queue, since it has expired or was deleted, the first of them is handed it, as by a release.
--
-- KEYS[1] the lock
-- KEYS[2] the fence register, one for all locks
-- KEYS[3] the queue of the lock: a sorted set of entries, scored by the time since which their lines wait, in µs
-- ARGV[1] token
-- ARGV[2] TTL in ms
-- ARGV[3] until when it may create the lock or an entry, in µs of TIME
-- ARGV[4] the entry to queue: "<claim in ms> <channel> <token>", with a dash before the channel if PUBSUB NUMSUB does
--         not say whether the process listens; absent: none
-- ARGV[5] how long the line has waited, in µs
-- ARGV[6] "again" if the entry should already be in the queue
--
-- Too late: {"late", seconds and µs of TIME}.
-- Granted: the tick of the fence, with a minus if the key was free and the entry was not in the queue "again": it was
-- skipped.
-- Held by another: {what is left of the holder's TTL in ms, -1 if it has none; the holder}. With an entry also: 1 if the
-- entry is new; 1 if it is the first; seconds and µs of TIME.
-- The lock is free, and the script has removed 64 entries of processes that do not listen, or are silent, while there are
-- more: {"more", 1 if the own entry is new}. The same acquire goes on.

local latest, own, looks = ARGV[3], ARGV[4], true
local time = redis.call('TIME')
-- include late.lua
local holder = (own or late) and redis.call('GET', KEYS[1]) -- if somebody waits, the lock is most likely held
if late and holder ~= ARGV[1] then return late end
-- Without an entry, a free lock is taken before the queue is looked at, which Redis refuses if it cannot write.
local free = not holder and (own or redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]))
holder = holder or not free and redis.call('GET', KEYS[1])

local first -- whether the own entry is; nil: unknown
local entry, added = free and redis.pcall('ZRANGE', KEYS[3], '0', '0')[1], 0 -- a key of another type counts as no queue
if own and (entry and entry ~= own or not free and holder ~= ARGV[1]) then
  do
    local entry, waited, again, try = own, ARGV[5], ARGV[6] == 'again', redis.call
    -- include queue.lua
    added, first = fresh, front
    if again then first = nil end -- to look at the queue
  end
  entry = free and redis.call('ZRANGE', KEYS[3], '0', '0')[1]
end
local more -- the script has done its most
if entry == '!' then
  -- include roll_call.lua
end
-- include hand_over.lua
if more or skipped == 64 then
  if not own then redis.call('DEL', KEYS[1]) end
  return {'more', added}
end

local new = free and not handed
if not new and holder ~= ARGV[1] then
  local left = redis.call('PTTL', KEYS[1])
  if not own then return {left, holder} end
  if first == nil or free then -- if free, others have left
    local two = redis.call('ZRANGE', KEYS[3], '0', '1')
    first = two[two[1] == '!' and 2 or 1] == own
    if two[1] == '!' then -- see roll_call.lua
      local score = redis.call('ZSCORE', KEYS[3], own) + 0
      if score % 1 == 0 then redis.pcall('ZADD', KEYS[3], string.format('%.1f', score + 0.5), own) end
    end
  end
  return {left, holder, added, first and 1 or 0, tonumber(time[1]), tonumber(time[2])}
end
local gone = own and (redis.pcall('ZREM', KEYS[3], own) == 0 or added == 1 or new and not entry)
if new and (own or silent) then redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) end -- behind that write also if Redis is full
if not new then -- A resend never shortens the lease, and always writes.
  redis.call('PEXPIRE', KEYS[1], string.format('%.0f', math.max(redis.call('PTTL', KEYS[1]), tonumber(ARGV[2]))))
end

-- include fence.lua
if failed then
  if new then redis.call('DEL', KEYS[1]) end
  return failed
end
return new and gone and ARGV[6] and -tick or tick
