-- Reads an entry, and asks whether its process listens. A script includes this text before it grants.
--
-- Reads     entry
-- Declares  claim, limit, dash, channel and token, those of the entry. The limit is '' if it has none
--           listens, false if nobody subscribes to the channel on this server. With a dash, and if PUBSUB is refused, it is
--           true. Of an entry whose claim is 0, or above 4e12, it is false

local claim = string.match(entry, '^[1-9]%d*') or '' -- by itself: an entry may be all digits, and long
local limit, dash, channel, token = string.match(entry, '^:?(%d*) (%-?)(%S+) (.*)$', #claim + 1)
if claim == '' or tonumber(claim) > 4e12 then token = nil end
local listens = token and (dash ~= '' or redis.pcall('PUBSUB', 'NUMSUB', channel)[2] ~= 0)
