-- Ends the time for which a release keeps others out when its first send would have ended it at the latest. A script includes
-- this text before any write.
--
-- Reads     time, the reply to TIME
--           latest, until when the first send could come, in µs of that clock; '0': unknown
-- Changes   keep, that time in ms; nil if it has passed, so that the lock is handed on
--
-- If latest is unknown, the script answers as if it came too late: its sender learns the time from that.

-- include late.lua
if late then
  if latest == '0' then return late end
  keep = keep - math.ceil((time[1] * 1000000 + time[2] - latest) / 1000)
  keep = keep > 0 and string.format('%.0f', keep) or nil
end
