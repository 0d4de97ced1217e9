-- Releases the permit of a token, if it holds one, and grants all free permits to the longest waiters.
--
-- ARGV are those of release.lua, with the limit behind the token, as ARGV[2]. It replies as that does.

-- include semaphore.lua
prove()
local token, own, nextEntry, keep = ARGV[1], ARGV[3] or '', ARGV[4] ~= '' and ARGV[4], ARGV[7]
local held, wrong = look() -- an expired permit cannot be released
local released, latest = not wrong and leaseEnd(token), ARGV[6]
if nextEntry and released and not keep then
  local entry, waited, again, try = nextEntry, ARGV[5], false, redis.pcall
  -- include late.lua
  if late then
    nextEntry = nil
  else
    -- include queue.lua
  end
end
if own ~= '' then redis.pcall('ZREM', KEYS[3], own) end -- after the next entry, so that the queue stays
if wrong then return 0 end
if not released then return keep and leaseEnd('~' .. token) and 1 or 0 end
if keep then
  -- include keep.lua
end
if keep then
  hold('~' .. token, tonumber(keep))
  redis.call('ZREM', KEYS[1], token)
  return 1
end
leaving = token
local _, answer, tick = handOn(ARGV[2] - held + 1, nil, nextEntry)
if ended then purge() end
if leaving then redis.call('ZREM', KEYS[1], token) end
return nextEntry and {answer, tonumber(time[1]), tonumber(time[2]), tick} or answer
