-- Puts an entry into the queue, unless it has a place there. A script includes this text where it queues.
--
-- Reads     KEYS[3], the queue
--           entry and time, the reply to TIME
--           waited, how long the line has waited, in µs
--           again, set if the entry should already be in the queue
--           try, which is redis.call, or redis.pcall to ignore errors
-- Declares  fresh, 1 if the entry is new, else 0
--           front, whether it is the first, or nil if only a look at the queue can say that
--
-- The last two entries say whether the new one is alone, or behind all others as it should be. Scores are read only if it is not:
-- to write a large number is dear.

local queueMemory, fresh, front = '60000', 0, nil -- TTL of the queue, ms: waiters look every few seconds
if again and try('ZSCORE', KEYS[3], entry) then
  redis.call('PEXPIRE', KEYS[3], queueMemory)
else
  local micros = time[1] .. string.sub('00000' .. time[2], -6)
  local score = waited == '0' and micros or string.format('%.0f', math.max(micros - waited, 1))
  fresh = redis.pcall('ZADD', KEYS[3], 'NX', score, entry)
  if type(fresh) == 'table' then
    redis.pcall('ZREM', KEYS[3], '~') -- changes nothing, but behind a write a full Redis accepts the others
    fresh = try('ZADD', KEYS[3], 'NX', score, entry)
  end
  local tail = fresh == 1 and redis.call('ZRANGE', KEYS[3], '-2', '-1') or {}
  if tail[2] == entry then front = tail[1] == '!' end -- the mark of roll_call.lua
  if tail[2] and tail[2] ~= entry then
    local last = math.floor(redis.call('ZRANGE', KEYS[3], '-1', '-1', 'WITHSCORES')[2] + 1) -- a clock may be set back
    if last > tonumber(micros) then redis.call('ZADD', KEYS[3], string.format('%.0f', math.max(last - waited, 1)), entry) end
  end
  if tail[1] and not tail[2] then front = true end
  if front or time[2] % 16 == 0 and type(fresh) == 'number' then try('PEXPIRE', KEYS[3], queueMemory) end -- else not ours
end
