-- Acquires a lock for a token as the documentation of SETNX describes, or returns how long it is still held. A resend
-- grants it again. The numbered steps are those of legacy_setnx.go.
--
-- ARGV[1] token
-- ARGV[2] TTL in s
-- ARGV[3] until when it may create the lock or take it over, in µs of TIME
--
-- Too late: {"late", seconds and µs of TIME}.
-- Granted: 1 if the key was free, 2 if its time had passed, or the token already held it.
-- Held by another: {what is left of the holder's time in ms}.

-- include legacy.lua
local latest = ARGV[3]
-- include late.lua
if late then return late end
local ends = now + ARGV[2] + 1

-- 1. Take a free key.
if redis.call('SETNX', KEYS[1], string.format('%.0f', ends)) == 1 then
  own(ends)
  return 1
end
-- 2. Read until when it is held.
if odd then return odd end
-- 3. If its time has passed, take it over. In a script nothing comes between GET and GETSET, so no caller can lose here.
if not passed and not ours then return {left} end
if ends > till then own(ends) end -- a resend never shortens the lease
return 2
