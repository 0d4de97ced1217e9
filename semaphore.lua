-- The common part of the scripts of a semaphore. Each of them begins with this text.
--
-- KEYS[1] the permits: a sorted set of the holders' tokens, scored by the end of their leases, and of the empty member,
--         whose score is the negated limit
-- KEYS[2] the fence register, one for all locks
-- KEYS[3] the queue, with entries and scores as in acquire.lua. The limit of the waiter and a space are before each
--         entry. An entry that was handed a permit has a score of 0 until its token is released. If its token holds
--         none, the permit has expired unreleased, and the entry leaves the queue.
--
-- Times are µs of the clock of Redis.

local queueMemory = 60000 -- TTL of the queue after a look, ms: waiters look every few seconds

local call, pcall, format = redis.call, redis.pcall, string.format
local permits, queue = KEYS[1], KEYS[3]
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local function given(i) return ARGV[i] ~= '' and ARGV[i] or nil end

-- parse returns the limit and the token of an entry.
local function parse(entry) return string.match(entry, '^(%d+) %d+ %S+ (.*)$') end

-- members returns the entries with scores from low to high. A key of another type counts as an empty queue, and so does
-- none: on miniredis, pcall fails without a key.
local function members(low, high, ...)
  local found = queue and pcall('ZRANGEBYSCORE', queue, low, high, ...) or {}
  return found.err and {} or found
end

-- first returns the waiting entry that is the first of the queue, or nil.
local function first() return members('(0', '+inf', 'LIMIT', 0, 1)[1] end

-- forget removes the entries that were handed permits, if gone says so of their tokens.
local function forget(gone)
  for _, entry in ipairs(members(0, 0)) do
    local _, token = parse(entry)
    if gone(token) then call('ZREM', queue, entry) end
  end
end

-- enqueue returns 1 if it has added an entry to the queue, and 0 if the entry has kept its place.
local function enqueue(try, entry, waited, again)
  -- include queue.lua
  if type(fresh) == 'number' then call('PEXPIRE', queue, queueMemory) end
  return fresh
end

-- leaseEnd returns the end of the token's lease, or nil if it holds no permit.
local function leaseEnd(token)
  local ends = tonumber(token and call('ZSCORE', permits, token) or 0)
  return ends > now and ends or nil
end

-- check returns an error if the key is not a semaphore or has a limit other than the caller's: the limit of the holders,
-- or of the waiters if nobody holds a permit. Otherwise it returns nil, whether a permit has expired, and whether
-- nobody holds one. It changes nothing.
local function check(limit)
  local low = call('ZRANGE', permits, 0, 1, 'WITHSCORES')
  if low[1] and (low[1] ~= '' or tonumber(low[2]) >= 0) then
    return redis.error_reply('WRONGTYPE ' .. permits .. ' is not a semaphore')
  end
  local theirs = low[2] and -low[2]
  local expired = low[4] and tonumber(low[4]) <= now
  local idle = not low[4] or expired and tonumber(call('ZRANGE', permits, -1, -1, 'WITHSCORES')[2] or 0) <= now
  if idle then
    local waits = parse(first() or '')
    theirs = tonumber(waits)
  end
  if theirs and theirs ~= limit then return redis.error_reply('LIMIT ' .. format('%.0f', theirs)) end
  return nil, expired, idle
end

-- count returns the number of permits in the set. miniredis expires keys while a script runs.
local function count() return math.max(call('ZCARD', permits) - 1, 0) end

-- look removes permits that have expired, and returns the number of holders. If check fails, it changes nothing, and
-- returns nil and the error.
local function look(limit)
  local wrong, expired, idle = check(limit)
  if wrong then return nil, wrong end
  if expired then call('ZREMRANGEBYSCORE', permits, 0, format('%.0f', now)) end
  if expired or idle then forget(function(token) return not leaseEnd(token) end) end
  return idle and 0 or count()
end

-- mint returns a fence, how many more follow directly behind it, up to want in all, and the error if there is none. With
-- several permits want is 1: a block that one of them uses up late would not grow with the grants of the others.
local function mint(want)
  -- include fence.lua
  return fence, more, failed
end

-- hold lets the token hold its permit for ttl ms from now on, and never shortens that. before is the end of the lease
-- that it already has, or nil. limit is set for the first holder.
local function hold(token, ttl, before, limit)
  local ends = now + ttl * 1000
  if limit then call('ZADD', permits, -limit, '') end
  if before and before < ends then
    call('ZREM', permits, token) -- a full Redis refuses ZADD, but not behind another write of the script
  end
  if not before or before < ends then call('ZADD', permits, format('%.0f', ends), token) end
  if call('PTTL', permits) <= ttl then
    call('PEXPIRE', permits, format('%.0f', ttl + 1)) -- the set outlives the longest lease
  end
end

-- adopted removes the token's entry from the queue: its permit is from now on also held by another handle.
local function adopted(token) forget(function(owner) return owner == token end) end

-- handOn grants free permits to the longest waiters, and sends messages to their processes. It stops before the
-- entry mine. It returns how many permits are left, whether PUBLISH is forbidden, and by entry what it has granted:
-- {the fence, how many more}.
local function handOn(free, limit, cluster, mine)
  local granted, fence, more = {}, nil, nil
  while free > 0 do
    local queued = first()
    if not queued or queued == mine then break end
    if not fence then fence, more = mint(limit == 1 and 64 or 1) end
    if not fence then break end -- the next acquire reports the error
    local entry = string.match(queued, '^%d+ (.*)$') or ''
    -- include announce.lua
    if forbidden then return free, true, granted end
    if listens then
      local before = leaseEnd(token)
      hold(token, tonumber(ttl), before, free == limit and limit)
      if not before then free = free - 1 end
      call('ZADD', queue, 0, queued)
      call('PEXPIRE', queue, queueMemory)
      granted[queued], fence = {fence, more}, nil
    else
      call('ZREM', queue, queued) -- it does not listen
    end
  end
  return free, false, granted
end
