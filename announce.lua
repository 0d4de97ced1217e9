-- Announces a lock to the first of the queue. A script includes this text where it hands a lock on.
--
-- Reads     KEYS[1], the lock
--           entry, time, fence and more
--           cluster, set if the reply to PUBLISH does not say whether the process listens
-- Declares  ttl and token, those of the entry
--           listens, set if its process learns of the lock
--           forbidden, set if PUBLISH is
--
-- The message: "<seconds of TIME> <µs of TIME> <fence> <how many more> <length of the entry> <entry><key>".

local ttl, polls, process, token = string.match(entry, '^(%d+) (%-?)(%S+) (.*)$')
local listeners = 0
if polls == '' then
  listeners = pcall('PUBLISH', process, time[1] .. ' ' .. time[2] .. ' ' .. format('%.0f', fence) .. ' ' .. more
    .. ' ' .. #entry .. ' ' .. entry .. KEYS[1])
end
local forbidden = type(listeners) == 'table'
local listens = token and not forbidden and (listeners > 0 or cluster or polls ~= '')
