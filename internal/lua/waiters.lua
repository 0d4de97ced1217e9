-- Reads the queue to inspect it. A script includes this text.
--
-- Reads     KEYS[2], the queue
--           now, the reply to TIME in µs
-- Sets      waiters, the first 100 entries, each followed by how long it has waited, in µs
--           count, the length of the queue

waiters, count = redis.call('ZRANGE', KEYS[2], 0, 99, 'WITHSCORES'), redis.call('ZCARD', KEYS[2])
if waiters[1] and string.sub(waiters[1], 1, 1) == '!' then -- a mark, see roll_call.lua and semaphore.lua
  table.remove(waiters, 1)
  table.remove(waiters, 1)
  count = count - 1
end
for i = 2, #waiters, 2 do waiters[i] = math.ceil(math.max(now - waiters[i], 0)) end
