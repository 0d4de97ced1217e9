-- Compare and delete: gives a lock back, if the token still holds it. Where somebody queues for
-- it, the key is not deleted but set to the next waiter's token, so that it is never free and
-- nobody can barge, and the waiter's process is told.
--
-- KEYS[1] the lock
-- KEYS[2] its fence counter; absent with the queue
-- KEYS[3] its queue; absent: nobody queues
-- ARGV[1] token; empty to leave the queue and release nothing
-- ARGV[2] the entry with which the token itself is still queued, or ''
-- ARGV[3] how long a waiter has to claim its full TTL, ms
-- ARGV[4] how long to remember the counter after its last use, ms
-- ARGV[5] how long to remember the queue after its last use, ms
-- ARGV[6] 1 if the answer of PUBLISH tells whether the process is there, 0 if not
--
-- 1: released. 0: the token does not hold it, and whatever is there was left alone. -1: released,
-- but whoever is next could not be told, since PUBLISH is forbidden.
--
-- What is told: "<claim time, ms> <TIME's seconds> <TIME's µs> <fence> <length of the token>
-- <token><key>".

-- A queue of another type is none: it must not keep a lock from being released.
local queue = KEYS[3]
if queue and ARGV[2] ~= '' then
  redis.pcall('ZREM', queue, ARGV[2])
end
if ARGV[1] == '' then
  return 0
end
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end

while queue do
  local head = redis.pcall('ZPOPMIN', queue)
  if head.err or not head[1] then
    break
  end
  local ttl, channel, token = string.match(head[1], '^(%d+) (%S+) (.*)$')
  local counter = redis.pcall('GET', KEYS[2])
  if token and type(counter) ~= 'table' then
    local claim = math.min(tonumber(ttl), tonumber(ARGV[3]))
    local time = redis.call('TIME')
    local fence = math.max((tonumber(counter or '0') or 0) + 1, time[1] * 1000000 + time[2])
    fence = string.format('%.0f', fence)
    redis.call('SET', KEYS[1], token, 'PX', claim)
    redis.call('SET', KEYS[2], fence, 'PX', ARGV[4])
    local heard = redis.pcall('PUBLISH', channel,
      table.concat({claim, time[1], time[2], fence, #token, token .. KEYS[1]}, ' '))
    if type(heard) == 'table' then
      redis.call('ZADD', queue, head[2], head[1])
      redis.call('PEXPIRE', queue, ARGV[5])
      redis.call('DEL', KEYS[1])
      return -1
    end
    if heard > 0 or ARGV[6] == '0' then
      return 1
    end
  end
  -- Nobody heard it: that process is gone, and the next waiter's turn has come.
end
return redis.call('DEL', KEYS[1])
