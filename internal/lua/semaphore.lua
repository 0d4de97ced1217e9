-- The common part of the scripts of a semaphore and of a read-write lock, which is a semaphore with writers: tokens that begin with
-- '!'. Such a token holds the key alone. Each script begins with this text. Times are µs of the clock of Redis.
--
-- KEYS[1] the permits: a sorted set of the holders' tokens, scored by the end of their leases
-- KEYS[2] the fence register, one for all locks
-- KEYS[3] the queue, with entries and scores as in acquire.lua. A colon and the limit of its callers follow the claim of an entry

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- prove fails where the script could not write, and changes nothing. Behind it, a full Redis accepts the other writes.
local function prove() redis.call('ZREM', KEYS[1], '~') end

-- first returns the first entry of the queue, or nil, and until when it keeps later callers back that would fit; nil if none has
-- come. A key of another type counts as an empty queue.
--
-- That instant is the score of a mark, less zero. The mark is '!' and the entry. It comes before all entries, and goes with its own.
local mark, zero = nil, 9e15
local function first()
  local two = redis.pcall('ZRANGE', KEYS[3], '0', '1', 'WITHSCORES')
  mark = two[1] and string.sub(two[1], 1, 1) == '!' and two[1]
  if not mark then return two[1] end
  return two[3], mark == '!' .. (two[3] or '') and two[2] + zero or nil
end

-- keepBack lets the first entry keep later callers back for 3 s more. Its line looks more often than that, if its process is alive.
local function keepBack(entry)
  if mark and mark ~= '!' .. entry then redis.call('ZREM', KEYS[3], mark) end
  redis.call('ZADD', KEYS[3], string.format('%.0f', now + 3000000 - zero), '!' .. entry)
end

-- leaving is the token whose permit is being released, until it is granted another one. It counts as one without a permit.
local leaving

-- What is known of the permits: the scores that were read or written, and 0 for a token without a permit; whether look has found
-- none at all; and the TTL of the set, or nil.
local scores, none, lasts = {}, false, nil

-- leaseEnd returns the end of the token's lease, or nil if it holds no permit.
local function leaseEnd(token)
  if token == leaving then return nil end
  scores[token] = scores[token] or not none and tonumber(redis.call('ZSCORE', KEYS[1], token)) or 0
  return scores[token] > now and scores[token] or nil
end

-- exclusive reports whether a token is that of a writer, or keeps others out after it.
local function exclusive(token) return string.find(token, '^~?!') end

-- fits reports whether a token without a permit may have one. held is the number of holders; infinite: one of them is exclusive.
local held = 0
local function fits(token, limit) return held < (exclusive(token) and 1 or limit) end

-- look counts the holders. It returns an error if the key is no semaphore.
local ended = false -- set if there are permits that have expired
local function look()
  local oldest = redis.call('ZRANGE', KEYS[1], '0', '0', 'WITHSCORES')
  local token, ends = oldest[1], tonumber(oldest[2] or now)
  if ends < 9e14 then -- no time since 1998
    return redis.error_reply('WRONGTYPE ' .. KEYS[1] .. ' is not a semaphore')
  end
  if not token then
    none, lasts = true, -2
    return nil
  end
  scores[token] = ends
  held = redis.call('ZCARD', KEYS[1])
  ended = ends <= now
  if ended then
    local gone = #redis.call('ZRANGEBYSCORE', KEYS[1], '0', string.format('%.0f', now))
    held, token = held - gone, redis.call('ZRANGE', KEYS[1], gone, gone)[1]
  end
  if token and exclusive(token) then held = math.huge end -- it is the only one
end

-- purge removes permits that have expired. Permits are removed when new ones have been written: without any the key is gone, and
-- while its slot of a Cluster moves, a key that is gone is on the other server.
local function purge() redis.call('ZREMRANGEBYSCORE', KEYS[1], '0', string.format('%.0f', now)) end

-- mint returns the tick of a fence, or nil and an error.
local function mint()
  -- include fence.lua
  return tick, failed
end

-- hold lets the token hold a permit for ttl ms from now on, and never shortens that. The set outlives the longest lease.
local function hold(token, ttl)
  local ends = math.max(now + ttl * 1000, leaseEnd(token) or 0)
  redis.call('ZADD', KEYS[1], string.format('%.0f', ends), token)
  scores[token] = ends
  if token == leaving then leaving = nil end
  lasts = lasts or redis.call('PTTL', KEYS[1])
  if lasts <= ttl then
    lasts = ttl + 1
    redis.call('PEXPIRE', KEYS[1], string.format('%.0f', lasts))
  end
end

-- handOn grants permits to the longest waiters, for the claims in their entries, and sends messages to their processes. It stops
-- before the entry mine, and before the first that does not fit, which nobody overtakes: it returns that one. Otherwise the first
-- result is nil. An entry whose time as the first has passed is removed. handOn also returns 1, -1 or -2 as release.lua, and if the
-- entry told is granted a permit, the tick of its fence.
local function handOn(mine, told)
  local entry, ends = first()
  local answer, own = 1, nil
  while entry and entry ~= mine do
    -- include listens.lua
    local had = listens and leaseEnd(token)
    local may = had or listens and fits(token, tonumber(limit) or 1)
    if listens and not may and (not ends or ends > now) then return entry, answer, own end
    if may then
      local tick, failed = mint()
      if failed then break end -- the next acquire reports it
      hold(token, tonumber(claim))
      -- include announce.lua
      if untold then answer = dash == '' and -2 or -1 end
      if untold and dash == '' then -- nobody would look soon
        if not had then
          redis.call('ZREM', KEYS[1], token)
          scores[token], lasts = 0, nil -- the set may be gone
        end
        break
      end
      if not had then held = exclusive(token) and math.huge or held + 1 end
      if entry == told then own = tick end
    end
    redis.call('ZREM', KEYS[3], entry, '!' .. entry)
    entry, ends = first()
  end
  return nil, answer, own
end
