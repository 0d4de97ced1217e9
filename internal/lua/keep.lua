-- Ends the time for which a release keeps others out when its first send would have ended it at the latest. A script includes
-- this text before any write.
--
-- Reads     time, the reply to TIME
--           latest, until when the first send could come, in µs of that clock, with a minus sign if the sender has just learned
--           the time from that clock
-- Changes   keep, that time in ms; nil if it has passed, so that the lock is handed on
--
-- Without the sign the script answers that it came too late: the clock may have been set since, or be another one. Its sender
-- learns the time from that.

local known = string.sub(latest, 1, 1) == '-'
if known then latest = string.sub(latest, 2) end
-- include late.lua
if late then
  if not known then return late end
  keep = keep - math.ceil((time[1] * 1000000 + time[2] - latest) / 1000)
  keep = keep > 0 and string.format('%.0f', keep) or nil
end
