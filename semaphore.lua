-- The common part of the scripts of a semaphore. It is put before each of them.
--
-- KEYS[1] the permits: a sorted set of the holders' tokens, scored by the end of their leases, and of the empty member,
--         whose score is the negated limit
-- KEYS[2] the fence register, one for all locks
-- KEYS[3] the queue, with entries and places as in acquire.lua. An entry that was handed a permit has a score of 0
--         until its token is released. If its token holds none, the permit has expired unreleased, and all entries of
--         the process leave the queue, as in release.lua.
--
-- Times are µs of the clock of Redis.

local registerMemory = 86400000 -- TTL of the register after the clock has set it, ms
local slack = 10000 -- how far the register may lag behind the clock, µs
local queueMemory = 60000 -- TTL of the queue after a look, ms: waiters look every few seconds

local call, pcall, format = redis.call, redis.pcall, string.format
local permits, register, queue = KEYS[1], KEYS[2], KEYS[3]
local time = call('TIME')
local now = time[1] * 1000000 + time[2]

-- parse returns the TTL of an entry, a dash if its process polls, the channel of the process, and the token.
local function parse(entry)
  return string.match(entry, '^(%d+) (%-?)(%S+) %d+ (.*)$')
end

-- members returns the entries with scores from low to high. A key of another type counts as an empty queue.
local function members(low, high, ...)
  local found = pcall('ZRANGEBYSCORE', queue, low, high, ...)
  return found.err and {} or found
end

-- forget removes the waiting entries of a process from the queue.
local function forget(process)
  for _, entry in ipairs(members('(0', '+inf')) do
    local _, _, channel = parse(entry)
    if not channel or channel == process then
      call('ZREM', queue, entry)
    end
  end
end

-- look removes permits that have expired. It returns the limit, nil if nobody holds a permit; the number of
-- holders; and the holder whose lease ends first, with its end.
local function look()
  local low = call('ZRANGE', permits, 0, 1, 'WITHSCORES')
  if low[1] and low[1] ~= '' then
    error('WRONGTYPE ' .. permits .. ' is not a semaphore')
  end
  local expired = low[4] and tonumber(low[4]) <= now
  if expired then
    call('ZREMRANGEBYSCORE', permits, 0, format('%.0f', now))
  end
  if expired or not low[4] then
    for _, entry in ipairs(members(0, 0)) do
      local _, _, process, token = parse(entry)
      if not token or not call('ZSCORE', permits, token) then
        call('ZREM', queue, entry)
        forget(process)
      end
    end
  end
  if expired then
    low = call('ZRANGE', permits, 0, 1, 'WITHSCORES')
  end
  if not low[4] then
    return nil, 0
  end
  return -low[2], call('ZCARD', permits) - 1, low[3], tonumber(low[4])
end

-- mint returns the next fence, or nil and the error of the register.
local function mint()
  local fence = pcall('INCR', register)
  if type(fence) == 'number' and fence >= 2^53 then -- as in acquire.lua
    pcall('DECR', register)
    fence = {err = 'overflow'}
  end
  if type(fence) == 'table' then
    if string.find(fence.err, 'WRONGTYPE') or string.find(fence.err, 'integer') or string.find(fence.err, 'overflow') then
      fence = redis.error_reply('ERR the fence register ' .. register
        .. ' holds something else: delete it, or use WithKeyPrefix')
    end
    return nil, fence
  end
  if fence < now - slack then
    fence = now
    call('SET', register, format('%.0f', fence), 'PX', registerMemory)
  end
  return fence
end

-- hold lets the token hold its permit for ttl ms from now on, and never shortens that. limit is set for the first
-- holder. hold reports whether the token is a new holder.
local function hold(token, ttl, limit)
  local ends, before = now + ttl * 1000, call('ZSCORE', permits, token)
  if limit then
    call('ZADD', permits, -limit, '')
  end
  if not before or tonumber(before) < ends then
    call('ZADD', permits, format('%.0f', ends), token)
  end
  if call('PTTL', permits) <= ttl then
    call('PEXPIRE', permits, format('%.0f', ttl + 1)) -- the set outlives the longest lease
  end
  return not before
end

-- adopted removes the token's entry from the queue: its permit is from now on also held by another handle.
local function adopted(token)
  for _, entry in ipairs(members(0, 0)) do
    local _, _, _, owner = parse(entry)
    if owner == token then
      call('ZREM', queue, entry)
    end
  end
end

-- handOn grants free permits to the longest waiters, and sends messages to their processes. It stops before the
-- entry mine. It returns how many permits are left, and whether PUBLISH is forbidden.
local function handOn(free, limit, cluster, mine)
  while free > 0 do
    local entry = members('(0', '+inf', 'LIMIT', 0, 1)[1]
    if not entry or entry == mine then
      break
    end
    local ttl, polls, process, token = parse(entry)
    local listeners = 0
    if token then
      local fence = mint()
      if not fence then
        break -- the next acquire reports the error
      end
      if polls == '' then
        listeners = pcall('PUBLISH', process, time[1] .. ' ' .. time[2] .. ' ' .. format('%.0f', fence) .. ' '
          .. #entry .. ' ' .. entry .. permits)
        if type(listeners) == 'table' then
          return free, true
        end
      end
    end
    if token and (listeners > 0 or cluster or polls ~= '') then
      if hold(token, tonumber(ttl), free == limit and limit) then
        free = free - 1
      end
      call('ZADD', queue, 0, entry)
      call('PEXPIRE', queue, queueMemory)
    else
      forget(process or '') -- it does not listen
    end
  end
  return free, false
end

