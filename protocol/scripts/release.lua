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
local wrote = redis.pcall('ZREM', KEYS[1], '~')
local readonly = type(wrote) == 'table' and string.find(wrote.err, 'READONLY') and wrote
  return readonly or keep and holder == '~' .. ARGV[1] and 3 or 0
end
if keep then
  local time, latest = redis.call('TIME'), ARGV[5]
local known = string.sub(latest, 1, 1) == '-'
if known then latest = string.sub(latest, 2) end
local late = time[1] * 1000000 + time[2] > tonumber(latest) and {'late', tonumber(time[1]), tonumber(time[2])}
if late then
  if not known then return late end
  keep = keep - math.ceil((time[1] * 1000000 + time[2] - latest) / 1000)
  keep = keep > 0 and string.format('%.0f', keep) or nil
end
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
local late = time[1] * 1000000 + time[2] > tonumber(latest) and {'late', tonumber(time[1]), tonumber(time[2])}
  if late then
    nextEntry = nil
  else
local queueMemory, fresh, front = '60000', 0, nil -- TTL of the queue, ms: waiters look every few seconds
if again and try('ZSCORE', KEYS[3], entry) then
  redis.call('PEXPIRE', KEYS[3], queueMemory)
else
  local micros = time[1] .. string.sub('00000' .. time[2], -6)
  local score = waited == '0' and micros or string.format('%.0f', math.max(micros - waited, 1))
  fresh = redis.pcall('ZADD', KEYS[3], 'NX', score, entry)
  if type(fresh) == 'table' then
    redis.pcall('ZREM', KEYS[3], '~') -- changes nothing, but behind a write a full Redis accepts the others
    fresh = try('ZADD', KEYS[3], 'NX', score, entry)
  end
  local tail = fresh == 1 and redis.call('ZRANGE', KEYS[3], '-2', '-1') or {}
  if tail[2] == entry then front = tail[1] == '!' end -- the mark of roll_call.lua
  if tail[2] and tail[2] ~= entry then
    local last = math.floor(redis.call('ZRANGE', KEYS[3], '-1', '-1', 'WITHSCORES')[2] + 1) -- a clock may be set back
    if last > tonumber(micros) then redis.call('ZADD', KEYS[3], string.format('%.0f', math.max(last - waited, 1)), entry) end
  end
  if tail[1] and not tail[2] then front = true end
  if front or time[2] % 16 == 0 and type(fresh) == 'number' then try('PEXPIRE', KEYS[3], queueMemory) end -- else not ours
end
  end
end
if leaving ~= '' then redis.pcall('ZREM', KEYS[3], leaving) end

local entry, own, looks = redis.pcall('ZRANGE', KEYS[3], '0', '0')[1], nil, nil
local handed, minted, silent, skipped = nil, nil, nil, 0
while entry and entry ~= own and skipped < 64 do
local claim = string.match(entry, '^[1-9]%d*') or '' -- by itself: an entry may be all digits, and long
local limit, dash, channel, token = string.match(entry, '^:?(%d*) (%-?)(%S+) (.*)$', #claim + 1)
if claim == '' or tonumber(claim) > 4e12 then token = nil end
local listens = token and (dash ~= '' or redis.pcall('PUBSUB', 'NUMSUB', channel)[2] ~= 0)
  if listens then
    if not time then redis.pcall('ZREM', KEYS[3], '~') end -- behind a write, a full Redis accepts the others
local registerMemory = '86400000' -- TTL of the register after the clock has set it, ms
local slack = 2500 -- how far the register may lag behind the clock, ticks

local tick, failed = redis.pcall('INCR', KEYS[2]), nil
if type(tick) == 'number' and tick < 2^47 then
  time = time or redis.call('TIME')
  local now = (time[1] - 1767225600) * 250000 + math.floor(time[2] / 4)
  if tick < now - slack or tick == 1 then
    tick = math.max(now, 1)
    redis.call('SET', KEYS[2], string.format('%.0f', tick), 'PX', registerMemory)
  end
else
  failed = type(tick) == 'number' and {err = 'overflow'} or tick
  if type(tick) == 'number' then redis.pcall('INCRBY', KEYS[2], -1) end -- it is no register, so it stays as it was
  tick = nil
  local why = failed.err
  if string.find(why, 'WRONGTYPE') or string.find(why, 'integer') or string.find(why, 'overflow') then
    failed = redis.error_reply('ERR the fence register ' .. KEYS[2]
      .. ' holds something else: delete it, or use WithKeyPrefix')
  end
end
    if failed then break end
    redis.call('SET', KEYS[1], token, 'PX', claim)
local untold = type(redis.pcall('PUBLISH', channel, time[1] .. ' ' .. time[2] .. ' ' .. string.format('%.0f', tick) .. ' '
  .. #entry .. ' ' .. entry .. KEYS[1])) == 'table'
    handed, minted, silent = dash ~= '' or not untold, tick, untold
    if handed then
      holder = token
      if looks and redis.call('ZRANGE', KEYS[3], '0', '1')[2] then -- others wait
        redis.pcall('ZADD', KEYS[3], string.format('%.0f', time[1] * 1000000 + time[2] - 9e15), '!')
      end
      redis.call('ZREM', KEYS[3], entry)
    end
    break
  end
  redis.call('ZREM', KEYS[3], entry)
  skipped = skipped + 1
  entry = redis.pcall('ZRANGE', KEYS[3], '0', '0')[1] -- an error: the queue is empty, and gone while its slot moves
end
local more = skipped == 64 and entry
if more then redis.call('PEXPIRE', KEYS[1], '1000') end -- if the next release does not come, a look goes on
if not handed and not more then redis.call('DEL', KEYS[1]) end
local answer = silent and (handed and -1 or -2) or 1
local reply = nextEntry and {answer, tonumber(time[1]), tonumber(time[2]), handed and entry == nextEntry and minted or nil} or answer
return more and {'more', reply} or reply
