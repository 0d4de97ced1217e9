-- Acquires a permit for a token. Earlier waiters come first, as far as their limits allow. If no permit is left, it returns a holder
-- and can queue an entry for the token. A resend grants the permit again, with a new fence, and keeps the place in the queue.
--
-- ARGV are those of acquire.lua, with the limit behind the TTL, as ARGV[3]. It replies as that does; the holder is the one whose
-- lease ends first, or to a writer, last. With an entry, what is left is the time until the token may fit. A permit that is kept
-- after its release is named only if nobody holds one. If ARGV[5] is empty, the token gets a permit beside that of ARGV[6], a
-- reader, whoever waits. If that has no permit, the reply is 0.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local zero = 9e15

-- A script does at most this of anything, so that it is short, however many wait or hold a permit. A grant counts twice.
local most = 64

-- prove fails where the script could not write, and changes nothing. Behind it, a full Redis accepts the other writes.
local function prove() redis.call('ZREM', KEYS[1], '~') end

-- first returns the first entry of the queue, or nil, and until when it keeps later callers back that would fit; nil if none has
-- come. A key of another type counts as an empty queue.
--
-- That instant is the score of a mark, less zero. The mark is '!' and the entry. It comes before all entries, and goes with its own.
-- A mark that is further ahead than patience is none: the clock was set back.
local mark
local patience = 3000000
local function first()
  local two = redis.pcall('ZRANGE', KEYS[3], '0', '1', 'WITHSCORES')
  mark = two[1] and string.sub(two[1], 1, 1) == '!' and two[1]
  if not mark then return two[1] end
  local till = two[2] + zero
  return two[3], mark == '!' .. (two[3] or '') and till <= now + patience and till or nil
end

-- keepBack lets the first entry keep later callers back for patience more. Its line looks more often than that, if its process is alive.
local function keepBack(entry)
  if mark and mark ~= '!' .. entry then redis.call('ZREM', KEYS[3], mark) end
  redis.call('ZADD', KEYS[3], string.format('%.0f', now + patience - zero), '!' .. entry)
end

-- leaving is the token whose permit is being released, until it is granted another one. It counts as one without a permit.
local leaving

-- What is known of the permits: the ends that were read or written, and 0 for a token without a permit; whether look has found
-- none at all; and the TTL of the set, or nil.
local ends, none, lasts = {}, false, nil

-- endOf returns the time that a score stands for.
local function endOf(score)
  return score < 0 and score + zero or score
end

-- leaseEnd returns the end of the token's lease, or nil if it holds no permit.
local function leaseEnd(token)
  if token == leaving then return nil end
  ends[token] = ends[token] or endOf(not none and tonumber(redis.call('ZSCORE', KEYS[1], token)) or 0)
  return ends[token] > now and ends[token] or nil
end

-- exclusive reports whether a token is that of a writer, or keeps others out after it.
local function exclusive(token) return string.find(token, '^~?!') end

-- fits reports whether a token without a permit may have one. held is the number of holders; infinite: one of them is exclusive.
local held = 0
local function fits(token, limit) return held < (exclusive(token) and 1 or limit) end

-- The scores of leases that have not ended, and of those that keep others out.
local leases, keeps = {string.format('(%.0f', now), '+inf'}, {string.format('(%.0f', now - zero), '(0'}
local function count(from, to) return redis.call('ZCOUNT', KEYS[1], from, to) end
local function firstOf(range)
  return redis.call('ZRANGEBYSCORE', KEYS[1], range[1], range[2], 'WITHSCORES', 'LIMIT', '0', '1')
end

-- look counts the holders. It returns an error if the key is no semaphore.
local kept, ended = false, false -- whether there may be values that keep others out, and permits that have ended
local function look()
  local oldest = redis.call('ZRANGE', KEYS[1], '0', '0', 'WITHSCORES')
  local token, score = oldest[1], tonumber(oldest[2] or now)
  if endOf(score) < 9e14 or endOf(score) > 8e15 then -- no time from 1998 to 2223
    return redis.error_reply('WRONGTYPE ' .. KEYS[1] .. ' is not a semaphore')
  end
  if not token then
    none, lasts = true, -2
    return nil
  end
  ends[token] = endOf(score)
  local all = redis.call('ZCARD', KEYS[1])
  local holders, keepers = all, 0
  if score <= now then
    kept = score < 0
    holders = count(leases[1], leases[2])
    keepers = kept and count(keeps[1], keeps[2]) or 0
  end
  held = holders + keepers
  ended = held < all
  -- An exclusive one was alone when it was granted. If the clock was set back since, others may seem to last that had ended. It ends
  -- last.
  local function lastOf(place) return all > 1 and redis.call('ZRANGE', KEYS[1], place, place)[1] or token end
  if holders > 0 and exclusive(lastOf('-1')) or keepers > 0 and exclusive(lastOf(count('-inf', '(0') - 1)) then held = math.huge end
end

-- purge removes permits that have ended. Permits are removed when new ones have been written: without any the key is gone, and
-- while its slot of a Cluster moves, a key that is gone is on the other server.
local function purge()
  local gone = kept and count('-inf', string.format('%.0f', now - zero)) or 0
  if gone > 0 then redis.call('ZREMRANGEBYRANK', KEYS[1], 0, math.min(gone, most) - 1) end
  local from = kept and count('-inf', '(0') or 0
  gone = count('0', string.format('%.0f', now))
  if gone > 0 then redis.call('ZREMRANGEBYRANK', KEYS[1], from, from + math.min(gone, most) - 1) end
end

-- named returns the token that a refusal names, which holds a permit if anybody does, and when the first permit ends. If last is set,
-- it returns the one that ends last, and that time. Nothing is returned without permits: miniredis expires keys while a script runs.
local function named(last)
  local found = {}
  if not kept or count(leases[1], leases[2]) > 0 then
    found = last and redis.call('ZRANGE', KEYS[1], '-1', '-1', 'WITHSCORES') or firstOf(leases)
  end
  if not kept then return found[1], found[2] end
  local token, at = found[1], found[1] and tonumber(found[2])
  if last then
    local place = count('-inf', '(0') - 1
    found = redis.call('ZRANGE', KEYS[1], place, place, 'WITHSCORES')
  else
    found = firstOf(keeps)
  end
  local other = found[1] and endOf(tonumber(found[2]))
  if other and (not at or (last and other > at or not last and other < at)) then at = other end
  return token or found[1], at
end

-- freeAt returns the earliest time at which fewer than limit permits may be held, of more than these. at is when the first ends.
local function freeAt(limit, at)
  local holders, over = count(leases[1], leases[2]), held - math.max(limit, 1)
  local keepers = held - holders
  local function later(place)
    local one = redis.call('ZRANGE', KEYS[1], place, place, 'WITHSCORES')
    for i = 2, #one do at = math.max(at, endOf(tonumber(one[i]))) end
  end
  if over >= keepers then later(redis.call('ZCARD', KEYS[1]) - holders + over - keepers) end
  if over >= holders then later(count('-inf', string.format('%.0f', now - zero)) + over - holders) end
  return at
end

-- mint returns the tick of a fence, or nil and an error.
local function mint()
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
  return tick, failed
end

-- hold lets the token hold a permit for ttl ms from now on, and never shortens that. The set outlives the longest lease. less is zero
-- for a value that keeps others out.
local function hold(token, ttl, less)
  local at = math.max(now + ttl * 1000, leaseEnd(token) or 0)
  redis.call('ZADD', KEYS[1], string.format('%.0f', at - (less or 0)), token)
  ends[token] = at
  if token == leaving then leaving = nil end
  lasts = lasts or redis.call('PTTL', KEYS[1])
  if lasts <= ttl then
    lasts = ttl + 1
    redis.call('PEXPIRE', KEYS[1], string.format('%.0f', lasts))
  end
end

-- handOn grants permits to the longest waiters, for the claims in their entries, and sends messages to their processes. It stops
-- before the entry mine, and before the first that does not fit, which nobody overtakes: it returns that one. Otherwise the first
-- result is nil. An entry whose time as the first has passed is removed. handOn also returns 1, -1 or -2 as release.lua, if the
-- entry told is granted a permit, the tick of its fence, and whether it has done its most. Unless it is of a look, it removes the
-- mark of one, see roll_call.lua.
local function handOn(mine, told, looks)
  local entry, till = first()
  if mark == '!' and not looks then redis.call('ZREM', KEYS[3], '!') end
  local answer, own, done = 1, nil, 0
  while entry and entry ~= mine do
    if done >= most then return nil, answer, own, true end
local claim = string.match(entry, '^[1-9]%d*') or '' -- by itself: an entry may be all digits, and long
local limit, dash, channel, token = string.match(entry, '^:?(%d*) (%-?)(%S+) (.*)$', #claim + 1)
if claim == '' or tonumber(claim) > 4e12 then token = nil end
local listens = token and (dash ~= '' or redis.pcall('PUBSUB', 'NUMSUB', channel)[2] ~= 0)
    local had = listens and leaseEnd(token)
    local may = had or listens and fits(token, tonumber(limit) or 1)
    if listens and not may and (not till or till > now) then return entry, answer, own end
    if may then
      local tick, failed = mint()
      if failed then break end -- the next acquire reports it
      hold(token, tonumber(claim))
local untold = type(redis.pcall('PUBLISH', channel, time[1] .. ' ' .. time[2] .. ' ' .. string.format('%.0f', tick) .. ' '
  .. #entry .. ' ' .. entry .. KEYS[1])) == 'table'
      if untold then answer = dash == '' and -2 or -1 end
      if untold and dash == '' then -- nobody would look soon
        if not had then
          redis.call('ZREM', KEYS[1], token)
          ends[token], lasts = 0, nil -- the set may be gone
        end
        break
      end
      if not had then held = exclusive(token) and math.huge or held + 1 end
      if entry == told then own = tick end
    end
    done = done + (may and 2 or 1)
    redis.call('ZREM', KEYS[3], entry, '!' .. entry)
    entry, till = first()
  end
  return nil, answer, own
end
local token, limit, latest, entry = ARGV[1], tonumber(ARGV[3]), ARGV[4], ARGV[5]
if entry == '' then prove() end
local wrong = look()
if wrong then return wrong end
local had = leaseEnd(token)
local late = time[1] * 1000000 + time[2] > tonumber(latest) and {'late', tonumber(time[1]), tonumber(time[2])}
if late and not had then return late end
local beside = entry == '' and not had
if beside and not leaseEnd(ARGV[6]) then return 0 end
entry = entry ~= '' and entry

-- enqueue returns 1 if the entry is new, else 0.
local function enqueue()
  local waited, again, try = ARGV[6], ARGV[7] == 'again', redis.call
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
  return fresh
end

local fresh, blocked
if not had and not beside and fits(token, limit) and first() then
  fresh = entry and enqueue() -- first: a hand-over can remove all other entries
  local nobody = held == 0
  local more -- the script has done its most
  if mark == '!' then
    local own, entry = entry, nil
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
  if not more then
    local _
    blocked, _, _, more = handOn(entry, nil, true)
  end
  if more then return {'more', fresh or 0} end
  if nobody and held > 0 and first() then -- others wait
    if mark then redis.call('ZREM', KEYS[3], mark) end
    redis.pcall('ZADD', KEYS[3], string.format('%.0f', now - zero), '!')
  end
  had = leaseEnd(token)
end

if not had and (blocked or not fits(token, limit)) then
  if ended then purge() end
  local holder, ends = named(exclusive(token))
  if entry and ends and limit < held and held < math.huge and not exclusive(token) then ends = freeAt(limit, ends + 0) end
  local left = ends and math.min(math.ceil((ends - now) / 1000), 4e12) or 0
  if entry then
    fresh = fresh or enqueue()
  else
    prove()
  end
  local head, ending
  if entry or blocked then head, ending = first() end
  if head and mark == '!' then -- see roll_call.lua
    local score = entry and redis.call('ZSCORE', KEYS[3], entry) + 0
    if entry and score % 1 == 0 then redis.pcall('ZADD', KEYS[3], string.format('%.1f', score + 0.5), entry) end
  else
    if blocked and not ending or ending and head == entry then keepBack(head) end
  end
  if not entry then return {left, holder} end
  return {left, holder or false, fresh, head == entry and 1 or 0, tonumber(time[1]), tonumber(time[2])}
end

if had or entry then prove() end -- to new holders that do not wait, a full Redis refuses the fence
local tick, failed = mint()
if failed then
  if fresh == 1 then redis.call('ZREM', KEYS[3], entry) end
  return failed
end
hold(token, tonumber(ARGV[2]))
if ended then purge() end
local gone = entry and redis.pcall('ZREM', KEYS[3], entry, '!' .. entry) == 0 or fresh == 1
return not had and gone and ARGV[7] and -tick or tick
