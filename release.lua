-- Releases a lock if the token still holds it. If somebody queues, the key is not deleted but set to the token of the
-- next waiter, and its process gets a message. So the lock is never free in between.
--
-- With WithMinHold there are two releases. The first replaces the token by a keeper, a value that nobody can hold a
-- lock with. The second hands on what the keeper, or still the token, keeps.
--
-- KEYS[1] the lock
-- KEYS[2] the fence register; absent with the queue
-- KEYS[3] the queue of the lock; absent: nobody queues
-- ARGV[1] token; empty: none
-- ARGV[2] "cluster" if the reply to PUBLISH does not say whether the process listens; else absent or empty
-- ARGV[3] the entry of the token, to remove it from the queue; absent or empty: it has none
-- ARGV[4] the keeper; absent: none
-- ARGV[5] how long the keeper keeps the key, in ms; absent: hand the lock on, even if nobody holds it
--
-- Returns 1 if the lock was released, or is kept. Returns 0, and leaves the lock alone, if the token does not hold it.
-- Returns -1 if it was released but PUBLISH is forbidden, so that no waiter got it.
--
-- The message: "<seconds of TIME> <µs of TIME> <fence> <length of the entry> <entry><key>".
--
-- The entry that was handed the lock stays in the queue, with a score of 0, until its token is released. If another
-- token is released first, the lock has expired unreleased: the process of the entry is frozen or cut off, though
-- PUBLISH counts it as listening. Then all its entries leave the queue. It queues them again when it continues.

local queueMemory = 60000 -- as in acquire.lua

local call, pcall = redis.call, redis.pcall
local queue, cluster = KEYS[3], ARGV[2] == 'cluster'
local keeper, keep = ARGV[4], ARGV[5]

-- A key of another type counts as no queue, so that it does not keep a lock from being released.
local queued = queue and (ARGV[3] or '') ~= ''
if queued then
  pcall('ZREM', queue, ARGV[3])
end
local holder = call('GET', KEYS[1])
local ours = holder == ARGV[1] and holder ~= ''
if keep then
  if ours then
    call('PEXPIRE', KEYS[1], keep) -- when Redis is full, it accepts SET only after another write
    call('SET', KEYS[1], keeper, 'PX', keep)
    return 1
  end
  return holder == keeper and 1 or 0 -- 1: this is a resend
end
if not ours and (not keeper or holder and holder ~= keeper) then
  return 0
end
local heads = queue and pcall('ZRANGE', queue, 0, 1, 'WITHSCORES') or {}
if not heads[1] then
  return call('DEL', KEYS[1])
end

-- parse returns the TTL of an entry, a dash if its process polls, the channel of the process, and the token.
local function parse(entry)
  return string.match(entry, '^(%d+) (%-?)(%S+) %d+ (.*)$')
end

-- forget removes the entries of a process from the queue, and returns the first entry that is left.
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
elseif not queued then -- a queue that hands on is kept by the looks of its waiters
  call('PEXPIRE', queue, queueMemory)
end

while entry do
  local ttl, polls, process, token = parse(entry)
  local listeners = 0
  if token then
    local fence = pcall('INCR', KEYS[2])
    if type(fence) == 'number' and fence >= 2^53 then -- as in acquire.lua
      pcall('DECR', KEYS[2])
      break
    end
    if type(fence) == 'table' then
      break -- the next acquire reports the error
    end
    local time = call('TIME')
    local now = time[1] * 1000000 + time[2]
    if fence < now - 10000 then -- as in acquire.lua
      fence = now
      call('SET', KEYS[2], string.format('%.0f', fence), 'PX', 86400000)
    end
    if polls == '' then
      listeners = pcall('PUBLISH', process, time[1] .. ' ' .. time[2] .. ' ' .. string.format('%.0f', fence) .. ' '
        .. #entry .. ' ' .. entry .. KEYS[1])
      if type(listeners) == 'table' then
        call('DEL', KEYS[1])
        return -1
      end
    end
    if listeners > 0 or cluster or polls ~= '' then
      call('SET', KEYS[1], token, 'PX', ttl)
      call('ZADD', queue, 0, entry)
      return 1
    end
  end
  entry = forget(process) -- it does not listen
end
return call('DEL', KEYS[1])
