-- Raises the fence counter of one node of a quorum. It is kept for an hour after its last use.
--
-- Reads     counter and time, the reply to TIME
-- Declares  fence, the vote of this node
--
-- The counter is at least the clock, so fences grow even if it was lost. In whole seconds, nodes with similar clocks agree.

local fence = math.max(counter + 1, (time[1] - 1767225600) * 250000)
redis.call('SET', KEYS[2], string.format('%.0f', fence), 'PX', 3600000)
