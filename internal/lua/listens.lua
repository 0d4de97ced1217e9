-- Reads an entry, and asks whether its process listens. A script includes this text before it grants.
--
-- Reads     entry
-- Declares  claim, limit, dash, channel and token, those of the entry. The limit is '' if it has none
--           listens, false if nobody subscribes to the channel on this server. With a dash, and if PUBSUB is refused, it is
--           true.

local claim, limit, dash, channel, token = string.match(entry, '^(%d+):?(%d*) (%-?)(%S+) (.*)$')
local listens = token and (dash ~= '' or redis.pcall('PUBSUB', 'NUMSUB', channel)[2] ~= 0)
