-- Puts an entry into the queue, unless it has a place there. A script includes this text where it queues.
--
-- Reads     queue, entry and time, the reply to TIME
--           waited, how long the caller has waited, in µs
--           again, set if the entry should already be in the queue
--           try, which is call, or pcall to ignore errors
-- Declares  fresh, 1 if the entry is new, else 0
--           score, that of a new entry
--           last, the highest score before; '0' if nobody queued; nil if the entry has kept its place

local place, fresh, last, score = again and try('ZSCORE', queue, entry), 0, nil, nil
if not place or place == '0' then -- 0: the entry was handed a lock that has expired
  last = try('ZRANGE', queue, -1, -1, 'WITHSCORES')[2] or '0' -- a clock may be set back
  score = math.max(math.max(time[1] * 1000000 + time[2], last + 1) - waited, 1)
  fresh = try('ZADD', queue, place and 'CH' or 'NX', format('%.0f', score), entry)
end
