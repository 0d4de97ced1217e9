-- Announces a grant to the process of an entry. A script includes this text behind the grant.
--
-- Reads     KEYS[1], the lock
--           entry, channel, time and tick
-- Declares  untold, set if PUBLISH is refused
--
-- The message: "<seconds of TIME> <µs of TIME> <tick> <length of the entry> <entry><key>".

local untold = type(redis.pcall('PUBLISH', channel, time[1] .. ' ' .. time[2] .. ' ' .. string.format('%.0f', tick) .. ' '
  .. #entry .. ' ' .. entry .. KEYS[1])) == 'table'
