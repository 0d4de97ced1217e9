-- Takes entries of silent lines out of the queue. A script includes this text where it looks, and finds the lock, or a permit, free
-- and a mark. For a semaphore, a look leaves the mark only if nobody held a permit.
--
-- Reads     KEYS[3], the queue, whose first member is the mark
--           time, the reply to TIME
--           own, the entry of the line that looks; nil: none
-- Changes   entry, to the first in the queue; nil if there is more to do
--           more, set if it has removed the first 64: those behind them may be silent, too, and the mark stays
--
-- A look that finds the lock free hands it to the first entry, and leaves a mark: '!', scored by the time in µs less 9 * 10^15,
-- so before all entries. A line that looks while the mark is there adds half a µs to the score of its entry. The next release
-- takes the mark out. If the next that finds the lock free is a look, the owner has not released the lock: it has lost it, or
-- never knew of it. Then lines are silent that have not looked since the mark. If one of them is alive, it queues again with its
-- next look, in its old place. A score may lie ahead if the clock was set back: a line that has queued since then has the half.

local all = redis.call('ZRANGE', KEYS[3], '0', '64', 'WITHSCORES')
local since, current = all[2] + 9e15, time[1] * 1000000 + time[2]
local gone, silent = 0, current - since >= 300000 -- all lines look that soon after the end of a lease
for i = 3, #all, 2 do
  local score = all[i + 1] + 0
  local looked = score % 1 ~= 0
  if looked then redis.pcall('ZADD', KEYS[3], string.format('%.0f', math.floor(score)), all[i]) end
  if silent and not looked and all[i] ~= own and (score < since or score > current) then
    redis.call('ZREM', KEYS[3], all[i])
    gone = gone + 1
  end
end
more = gone == 64
if more then
  entry = nil
else
  redis.call('ZREM', KEYS[3], all[1])
  entry = redis.pcall('ZRANGE', KEYS[3], '0', '0')[1] -- an error: the queue is empty, and gone while its slot moves
end
