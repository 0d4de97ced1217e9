-- Releases a lock if the token still holds it.
--
-- ARGV[1] token
--
-- Returns 1 if the keys were deleted, 0 if the token owns nothing, and -1 if the token owned the lock, but its time has passed or
-- its key is gone or holds another time.

-- include legacy.lua
-- 4. After its time has passed, the key may be another owner's.
if not ours then
  -- include writable.lua
  return readonly or owner == ARGV[1] and -1 or 0
end
redis.call('DEL', KEYS[1], KEYS[2], KEYS[3])
return 1
