-- Takes a lock for a token, or says how long its holder still has. Sent again it grants again.
--
-- KEYS[1] the lock
-- KEYS[2] its fence counter; absent: no fence is asked for
-- ARGV[1] token
-- ARGV[2] TTL, ms
-- ARGV[3] how long to remember the counter after its last use, ms
-- ARGV[4] grain of the clock that is the counter's floor, µs
--
-- Granted: the fence as an integer, or 1 without a counter.
-- Held by another: {what is left of the holder's TTL in ms, -1 where it has none}.

-- All reads come before any write: a key of another type stops the script and leaves nothing.
local fence
if KEYS[2] then
  fence = tonumber(redis.call('GET', KEYS[2]) or '0')
  if not fence then
    return redis.error_reply('ERR the fence counter holds something else')
  end
end
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then
  return {redis.call('PTTL', KEYS[1])}
end

-- A lease is never shortened by an acquire that comes again.
if not holder or redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
end
if not fence then
  return 1
end

-- The clock is the counter's floor: fences keep growing after the counter was lost.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
fence = math.max(fence + 1, now - now % ARGV[4])
redis.call('SET', KEYS[2], string.format('%.0f', fence), 'PX', ARGV[3])
return fence
