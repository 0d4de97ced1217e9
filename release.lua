-- Releases a lock if the token still holds it. If somebody queues, the key is not deleted but set to the token of the
-- first waiter, for the claim in its entry, and its process gets a message. So the lock is never free in between.
--
-- KEYS[1] the lock
-- KEYS[2] the fence register
-- KEYS[3] the queue of the lock
-- ARGV[1] token
-- ARGV[2] the entry of the token, to remove it from the queue; absent or empty: none
-- ARGV[3] the entry to queue for the next caller in line; absent or empty: none
-- ARGV[4] how long that line has waited, in µs
-- ARGV[5] until when it may be queued, or when the time of ARGV[6] begins at the latest, in µs of TIME; the latter with a minus
--         sign if TIME has just been learned
-- ARGV[6] absent: hand the lock on. Else the key keeps others out for this time, in ms: its value is a tilde and the token.
--
-- Returns 1 if the lock was released, or is kept. Returns 0, and leaves the lock alone, if the token does not hold it, and 3
-- if the lock was to be kept and was kept for the token before: this is a resend, or another handle has released the lock.
-- Returns -1 if it was handed on but PUBLISH is refused, and -2 if it is free for that reason, although others wait: the first
-- of them has no dash. If it has queued an entry, it returns {that number, seconds, µs of TIME}, and if that entry was handed
-- the lock, also the tick of the fence. If the key is to be kept, and ARGV[5] has passed and has no minus sign, it returns
-- {"late", seconds, µs of TIME}.
-- If it has removed 64 entries of processes that do not listen, and there are more, it returns {"more", what it would return
-- otherwise}: the token has the lock yet, for a second at most, and a release by the token alone goes on.

local leaving, nextEntry, keep = ARGV[2] or '', ARGV[3] ~= '' and ARGV[3], ARGV[6]
local holder = redis.call('GET', KEYS[1])
if holder ~= ARGV[1] then
  if leaving ~= '' and redis.pcall('ZREM', KEYS[3], leaving) == 1 then -- a key of another type counts as no queue
    local two = redis.pcall('ZRANGE', KEYS[3], '0', '1')
    if two[1] == '!' and not two[2] then redis.pcall('ZREM', KEYS[3], '!') end -- nobody waits: see roll_call.lua
  end
  -- include writable.lua
  return readonly or keep and holder == '~' .. ARGV[1] and 3 or 0
end
if keep then
  local time, latest = redis.call('TIME'), ARGV[5]
  -- include keep.lua
end
if keep then
  redis.call('PEXPIRE', KEYS[1], keep) -- a full Redis accepts SET only behind another write
  redis.call('SET', KEYS[1], '~' .. ARGV[1], 'PX', keep)
  return 1
end

-- Nothing is removed that is written later. While a slot of a Cluster moves, a key that is gone is on the other server: to touch it
-- would end the script between two writes.
local time
if nextEntry then
  redis.pcall('ZREM', KEYS[3], '~') -- changes nothing, but behind a write a full Redis accepts the others
  time = redis.call('TIME')
  local latest, entry, waited, again, try = ARGV[5], nextEntry, ARGV[4], false, redis.pcall
  -- include late.lua
  if late then
    nextEntry = nil
  else
    -- include queue.lua
  end
end
if leaving ~= '' then redis.pcall('ZREM', KEYS[3], leaving) end

local entry, own, looks = redis.pcall('ZRANGE', KEYS[3], '0', '0')[1], nil, nil
-- include hand_over.lua
local more = skipped == 64 and entry
if more then redis.call('PEXPIRE', KEYS[1], '1000') end -- if the next release does not come, a look goes on
if not handed and not more then redis.call('DEL', KEYS[1]) end
local answer = silent and (handed and -1 or -2) or 1
local reply = nextEntry and {answer, tonumber(time[1]), tonumber(time[2]), handed and entry == nextEntry and minted or nil} or answer
return more and {'more', reply} or reply
