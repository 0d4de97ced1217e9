-- Takes a lock for a token on one node of a quorum, or says how long its holder still has it. Sent again it
-- grants again.
--
-- KEYS[1] the lock
-- KEYS[2] its fence counter on this node
-- KEYS[3] the mark that others want it
-- ARGV[1] token
-- ARGV[2] TTL, ms
-- ARGV[3] set where a lease that the token has already is left as long as it is
--
-- Granted: the node's vote for the fence, negative where the token had the lock already.
-- Held by another: {what is left of the holder's TTL in ms, -1 where it has none; the holder}.

local counterMemory = 3600000 -- how long the counter outlives its last use, ms
local wantedMemory = 500 -- how long the mark outlives the refusal that set it, ms: waiters ask more often

local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then
  redis.pcall('SET', KEYS[3], '', 'NX', 'PX', wantedMemory)
  return {redis.call('PTTL', KEYS[1]), holder}
end
-- What may fail comes before any write: a counter of another type stops the script and leaves nothing.
local counter = tonumber(redis.call('GET', KEYS[2]) or '0')
if not counter then
  return redis.error_reply('ERR the fence counter holds something else')
end
-- A lease is never shortened by an acquire that comes again.
if not holder or not ARGV[3] and redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
end
-- The clock is the counter's floor: fences keep growing after the counter was lost. It counts whole
-- seconds, so that nodes whose clocks are close vote alike.
local fence = math.max(counter + 1, redis.call('TIME')[1] * 1000000)
redis.call('SET', KEYS[2], string.format('%.0f', fence), 'PX', counterMemory)
return holder and -fence or fence
