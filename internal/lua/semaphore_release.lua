-- Releases the permit of a token, if it holds one, and grants permits to the longest waiters. It also grants them if it takes an
-- entry out of the queue, which may have kept others back.
--
-- ARGV are those of release.lua. It replies as that does. The rest of the waiters gets what is free with the next release of the
-- token, which it holds no more, or with a look.

-- include semaphore.lua
prove()
local token, own, nextEntry, keep = ARGV[1], ARGV[2] or '', ARGV[3] ~= '' and ARGV[3], ARGV[6]
local wrong = look() -- an expired permit cannot be released
local released, latest = not wrong and leaseEnd(token), ARGV[5]
if nextEntry and released and not keep then
  local entry, waited, again, try = nextEntry, ARGV[4], false, redis.pcall
  -- include late.lua
  if late then
    nextEntry = nil
  else
    -- include queue.lua
  end
end
local left = own == '' and 0 or redis.pcall('ZREM', KEYS[3], own, '!' .. own) -- after the next entry, so that the queue stays
if wrong then return 0 end
if not released then
  local answer = keep and leaseEnd('~' .. token) and 3 or 0
  local more = (left ~= 0 or not ARGV[2]) and select(4, handOn()) -- of a key of another type, nothing
  if ended and held > 0 then purge() end
  return more and {'more', answer} or answer
end
if keep then
  -- include keep.lua
end
if keep then
  hold('~' .. token, tonumber(keep), zero)
  redis.call('ZREM', KEYS[1], token)
  return 1
end
leaving, held = token, exclusive(token) and 0 or held - 1
local _, answer, tick, more = handOn(nil, nextEntry)
if ended then purge() end
if leaving then redis.call('ZREM', KEYS[1], token) end
local reply = nextEntry and {answer, tonumber(time[1]), tonumber(time[2]), tick} or answer
return more and {'more', reply} or reply
