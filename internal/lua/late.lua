-- Finds out whether this command came too late to create anything: its sender does not wait for it any more. A script
-- includes this text, and changes nothing if it would create something.
--
-- Reads     time, the reply to TIME
--           latest, in µs of that clock
-- Declares  late, the answer then, else false

local late = time[1] * 1000000 + time[2] > tonumber(latest) and {'late', tonumber(time[1]), tonumber(time[2])}
