-- Compare and delete: gives a lock back, if the token still holds it. Where somebody queues for it, the key
-- is not deleted but set to the next waiter's token, so that it is never free and nobody can barge, and the
-- waiter's process is told.
--
-- KEYS[1] the lock
-- KEYS[2] the fence register; absent with the queue
-- KEYS[3] the lock's queue; absent: nobody queues
-- ARGV[1] token; empty to leave the queue and release nothing
-- ARGV[2] the entry with which the token itself is still queued; absent or empty: none
-- ARGV[3] set where the answer of PUBLISH does not tell whether the process is there: in a cluster
--
-- 1: released. 0: the token does not hold it, and whatever is there was left alone. -1: released, but
-- whoever is next could not be told, since PUBLISH is forbidden.
--
-- What is told: "<claim time, ms> <TIME's seconds> <TIME's µs> <fence> <length of the token>
-- <token><key>".

local claimTime = 1000 -- how long a waiter has to claim its full TTL, ms
local queueMemory = 60000 -- as acquire.lua has it

local call, pcall = redis.call, redis.pcall
local queue = KEYS[3]

-- A queue of another type is none: it must not keep a lock from being released.
if queue and ARGV[2] and ARGV[2] ~= '' then
  pcall('ZREM', queue, ARGV[2])
end
if ARGV[1] == '' or call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end

while queue do
  local head = pcall('ZPOPMIN', queue)
  local entry = head[1]
  if not entry then
    break
  end
  local ttl, channel, token = string.match(entry, '^(%d+) (%S+) %d+ (.*)$')
  if token then
    local claim = math.min(ttl, claimTime)
    local fence = pcall('INCR', KEYS[2])
    if type(fence) == 'table' then -- the next acquire says what is wrong with the register
      call('ZADD', queue, head[2], entry)
      call('PEXPIRE', queue, queueMemory)
      break
    end
    local time = call('TIME')
    local now = time[1] * 1000000 + time[2]
    if fence < now - 10000 then -- as acquire.lua has it
      fence = now
      call('SET', KEYS[2], string.format('%.0f', fence), 'PX', 86400000)
    end
    call('SET', KEYS[1], token, 'PX', claim)
    local heard = pcall('PUBLISH', channel, claim .. ' ' .. time[1] .. ' ' .. time[2] .. ' '
      .. string.format('%.0f', fence) .. ' ' .. #token .. ' ' .. token .. KEYS[1])
    if type(heard) == 'table' then
      call('ZADD', queue, head[2], entry)
      call('PEXPIRE', queue, queueMemory)
      call('DEL', KEYS[1])
      return -1
    end
    if heard > 0 or ARGV[3] then
      return 1
    end
  end
  -- Nobody heard it: that process is gone, and the next waiter's turn has come.
end
return call('DEL', KEYS[1])
