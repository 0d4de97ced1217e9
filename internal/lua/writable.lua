-- Finds out whether this server can write. A replica that was a primary still answers reads, from stale data. A script
-- includes this text before it answers that a token does not hold its lock.
--
-- Declares  readonly, the error READONLY of a replica, else false
--
-- The write changes nothing: no member is a bare tilde.

local wrote = redis.pcall('ZREM', KEYS[1], '~')
local readonly = type(wrote) == 'table' and string.find(wrote.err, 'READONLY') and wrote
