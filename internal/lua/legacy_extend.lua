-- Extends a lock if the token still holds it. It never shortens a lease, and never restores a missing key.
--
-- ARGV[1] token
-- ARGV[2] TTL in s
--
-- Returns 1, or 0 if the token does not hold the lock or its time has passed.

-- include legacy.lua
if not ours then
  -- include writable.lua
  return readonly or 0
end
redis.pcall('ZREM', KEYS[1], '~') -- changes nothing, but behind a write a full Redis accepts the others
own(math.max(now + ARGV[2] + 1, till))
return 1
