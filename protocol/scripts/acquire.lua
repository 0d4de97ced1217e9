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
local late = time[1] * 1000000 + time[2] > tonumber(latest) and {'late', tonumber(time[1]), tonumber(time[2])}
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
    added, first = fresh, front
    if again then first = nil end -- to look at the queue
  end
  entry = free and redis.call('ZRANGE', KEYS[3], '0', '0')[1]
end
local more -- the script has done its most
if entry == '!' then
local all = redis.call('ZRANGE', KEYS[3], '0', '64', 'WITHSCORES')
local since, current = all[2] + 9e15, time[1] * 1000000 + time[2]
local gone, silent = 0, current - since >= 300000 -- all lines look that soon after the end of a lease
for i = 3, #all, 2 do
  local score = all[i + 1] + 0
  local looked = score % 1 ~= 0
  if looked then redis.pcall('ZADD', KEYS[3], string.format('%.0f', math.floor(score)), all[i]) end
  if silent and not looked and all[i] ~= own and (score < since or score > current) then
    redis.call('ZREM', KEYS[3], all[i])
    gone = gone + 1
  end
end
more = gone == 64
if more then
  entry = nil
else
  redis.call('ZREM', KEYS[3], all[1])
  entry = redis.pcall('ZRANGE', KEYS[3], '0', '0')[1] -- an error: the queue is empty, and gone while its slot moves
end
end
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
if failed then
  if new then redis.call('DEL', KEYS[1]) end
  return failed
end
return new and gone and ARGV[6] and -tick or tick
