-- Releases a lock if the token still holds it. If somebody queues, the key is not deleted but set to the token of the
-- first waiter, and its process gets a message. So the lock is never free in between.
--
-- With WithMinHold there are two releases. The first replaces the token by a keeper, a value that nobody can hold a
-- lock with. The second hands on what the keeper, or still the token, keeps.
--
-- KEYS[1] the lock
-- KEYS[2] the fence register; absent with the queue
-- KEYS[3] the queue of the lock; absent: nobody queues
-- ARGV[1] token; empty: none
-- ARGV[2] "cluster" if the reply to PUBLISH does not say whether the process listens; else absent or empty
-- ARGV[3] the entry of the token, to remove it from the queue; absent or empty: none
-- ARGV[4] the entry to queue for the next caller in line; absent or empty: none
-- ARGV[5] how long that caller has waited, in µs
-- ARGV[6] the keeper; absent or empty: none
-- ARGV[7] how long the keeper keeps the key, in ms; absent or empty: hand the lock on, even if nobody holds it
--
-- Returns 1 if the lock was released, or is kept. Returns 0, and leaves the lock alone, if the token does not hold it.
-- Returns -1 if it was released but PUBLISH is forbidden, so that no waiter got it. If the lock is not kept and there is
-- an entry to queue, it returns {1 or -1, seconds, µs of TIME}, and if that entry was handed the lock, also the fence
-- and how many more fences follow directly behind it.
--
-- The entry that was handed the lock stays in the queue, with a score of 0, until its token is released. If another
-- token is released first, the lock has expired unreleased, and the entry leaves the queue.

local call, pcall = redis.call, redis.pcall
local queue, keeper, keep = KEYS[3], ARGV[6] ~= '' and ARGV[6], ARGV[7] ~= '' and ARGV[7]
local own, nextEntry = queue and ARGV[3] ~= '' and ARGV[3], queue and ARGV[4] ~= '' and ARGV[4]

-- A key of another type counts as no queue, so that it does not keep a lock from being released. A ZREM that removes
-- nothing is a write too: behind it, a full Redis accepts the others.
if own or nextEntry then pcall('ZREM', queue, own or '') end
local holder = call('GET', KEYS[1])
local ours = holder == ARGV[1] and holder ~= ''
if keep then
  if ours then
    call('PEXPIRE', KEYS[1], keep) -- when Redis is full, it accepts SET only after another write
    call('SET', KEYS[1], keeper, 'PX', keep)
  end
  return (ours or holder == keeper) and 1 or 0 -- held by the keeper: this is a resend
end
if not ours and (not keeper or holder and holder ~= keeper) then return 0 end

local format, queueMemory = string.format, 60000 -- as in acquire.lua
local time
if nextEntry then
  time = call('TIME')
  local entry, waited, again, try = nextEntry, ARGV[5], false, pcall
  -- include queue.lua
  if fresh == 1 and (last == '0' or time[2] % 16 == 0) then call('PEXPIRE', queue, queueMemory) end
end

local heads = queue and pcall('ZRANGE', queue, 0, 1, 'WITHSCORES') or {}
local entry = heads[1]
if not entry and not nextEntry then return call('DEL', KEYS[1]) end

local function reply(answer, ...)
  return nextEntry and answer ~= 0 and {answer, tonumber(time[1]), tonumber(time[2]), ...} or answer
end
if heads[2] == '0' then
  call('ZREM', queue, entry)
  entry = heads[3]
elseif entry and not own and not nextEntry then -- a queue that hands on is kept by the looks of its waiters
  call('PEXPIRE', queue, queueMemory)
end
if not entry then return reply(call('DEL', KEYS[1])) end

local want, cluster = 64, ARGV[2] == 'cluster'
-- include fence.lua
while fence and entry do -- without a fence, the next acquire reports the error
  -- include announce.lua
  if forbidden then
    call('DEL', KEYS[1])
    return reply(-1)
  end
  if listens then
    call('SET', KEYS[1], token, 'PX', ttl)
    call('ZADD', queue, 0, entry)
    if entry ~= nextEntry then return reply(1) end
    return reply(1, fence, more)
  end
  call('ZREM', queue, entry) -- it does not listen
  entry = call('ZRANGE', queue, 0, 0)[1]
end
return reply(call('DEL', KEYS[1]))
