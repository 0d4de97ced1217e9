-- Compare and delete: gives a lock back, if the token still holds it. Where somebody queues for it, the key
-- is not deleted but set to the next waiter's token, so that it is never free and nobody can barge, and the
-- waiter's process is told.
--
-- KEYS[1] the lock
-- KEYS[2] the fence register; absent with the queue
-- KEYS[3] the lock's queue; absent: nobody queues
-- ARGV[1] token; empty to release nothing
-- ARGV[2] "cluster" where the answer of PUBLISH does not tell whether the process is there; else absent or empty
-- ARGV[3] the entry of the token, to take it out of the queue; absent or empty: it has none
-- ARGV[4] "handed": release only what was handed to that entry and nobody else has acquired by the token since;
--         "free": hand the lock on also where nobody holds it
--
-- 1: released. 0: the token does not hold it, and whatever is there was left alone. -1: released, but
-- whoever is next could not be told, since PUBLISH is forbidden.
--
-- What is told: "<TIME's seconds> <TIME's µs> <fence> <length of the entry> <entry><key>".
--
-- The entry that was handed the lock stays in the queue, with a score of 0, until its token is released. Where
-- another token is released first, the lock has expired unreleased: that process is frozen or cut off, and
-- PUBLISH counts it as listening. So all its entries leave the queue. They queue again when it lives.

local queueMemory = 60000 -- as acquire.lua has it

local call, pcall = redis.call, redis.pcall
local queue, cluster = KEYS[3], ARGV[2] == 'cluster'

-- A queue of another type is none: it must not keep a lock from being released.
if queue and (ARGV[3] or '') ~= '' then
  local handed = ARGV[4] == 'handed'
  local score = handed and pcall('ZSCORE', queue, ARGV[3])
  pcall('ZREM', queue, ARGV[3])
  if handed and score ~= '0' then
    return 0
  end
end
local holder = ARGV[1] ~= '' and call('GET', KEYS[1])
if holder ~= ARGV[1] and (holder or ARGV[1] == '' or ARGV[4] ~= 'free') then
  return 0
end
local heads = queue and pcall('ZRANGE', queue, 0, 1, 'WITHSCORES') or {}
if not heads[1] then
  return call('DEL', KEYS[1])
end

-- parse returns the TTL, a dash where the process polls, its channel, and the token.
local function parse(entry)
  return string.match(entry, '^(%d+) (%-?)(%S+) %d+ (.*)$')
end

-- forget takes the entries of a process out of the queue, and returns the first of the others.
local function forget(process)
  for _, entry in ipairs(call('ZRANGE', queue, 0, -1)) do
    local _, _, channel = parse(entry)
    if not channel or channel == process then
      call('ZREM', queue, entry)
    end
  end
  return call('ZRANGE', queue, 0, 0)[1]
end

local entry = heads[1]
if heads[2] == '0' then
  local _, _, process, token = parse(entry)
  if token == ARGV[1] then
    call('ZREM', queue, entry)
    entry = heads[3]
  else
    entry = forget(process)
  end
else
  call('PEXPIRE', queue, queueMemory)
end

while entry do
  local ttl, polls, process, token = parse(entry)
  local heard = 0
  if token then
    local fence = pcall('INCR', KEYS[2])
    if type(fence) == 'table' then
      break -- the next acquire says what is wrong with the register
    end
    local time = call('TIME')
    local now = time[1] * 1000000 + time[2]
    if fence < now - 10000 then -- as acquire.lua has it
      fence = now
      call('SET', KEYS[2], string.format('%.0f', fence), 'PX', 86400000)
    end
    if polls == '' then
      heard = pcall('PUBLISH', process, time[1] .. ' ' .. time[2] .. ' ' .. string.format('%.0f', fence) .. ' '
        .. #entry .. ' ' .. entry .. KEYS[1])
      if type(heard) == 'table' then
        call('DEL', KEYS[1])
        return -1
      end
    end
    if heard > 0 or cluster or polls ~= '' then
      call('SET', KEYS[1], token, 'PX', ttl)
      call('ZADD', queue, 0, entry)
      return 1
    end
  end
  entry = forget(process) -- nobody hears it
end
return call('DEL', KEYS[1])
