-- Puts an entry into the queue, unless it has a place there. A script includes this text where it queues.
--
-- Reads     KEYS[3], the queue
--           entry and time, the reply to TIME
--           waited, how long the line has waited, in µs
--           again, set if the entry should already be in the queue
--           try, which is redis.call, or redis.pcall to ignore errors
-- Declares  fresh, 1 if the entry is new, else 0
--           front, whether it is the first, or nil if only a look at the queue can say that

local queueMemory, fresh, front = '60000', 0, nil -- TTL of the queue, ms: waiters look every few seconds
if again and try('ZSCORE', KEYS[3], entry) then
  redis.call('PEXPIRE', KEYS[3], queueMemory)
else
  local last = try('ZRANGE', KEYS[3], '-1', '-1', 'WITHSCORES')[2] -- a clock may be set back
  local score = string.format('%.0f', math.max(math.max(time[1] * 1000000 + time[2], (last or 0) + 1) - waited, 1))
  fresh = redis.pcall('ZADD', KEYS[3], 'NX', score, entry)
  if type(fresh) == 'table' then
    redis.pcall('ZREM', KEYS[3], '~') -- changes nothing, but behind a write a full Redis accepts the others
    fresh = try('ZADD', KEYS[3], 'NX', score, entry)
  else
    if fresh == 1 and (not last or tonumber(score) > tonumber(last)) then front = not last end
  end
  if type(fresh) == 'number' and (not last or time[2] % 16 == 0) then try('PEXPIRE', KEYS[3], queueMemory) end -- else not ours
end
