-- Releases the permit of a token, if it holds one, and grants all free permits to the longest waiters.
--
-- KEYS    as in semaphore.lua
-- ARGV[1] token; empty: release nothing
-- ARGV[2] limit
-- ARGV[3] "cluster" if the reply to PUBLISH does not say whether the process listens; else empty
-- ARGV[4] the entry of the token, to remove it from the queue; absent or empty: it has none
-- ARGV[5] "handed": release only a permit that was handed to this entry and not acquired by the token since.
--         "free" has no effect: free permits are granted in any case
--
-- Returns 1 if the permit was released, 0 if the token held none. Returns -1 if it was released but PUBLISH is
-- forbidden, so that no waiter got it.

local token, entry = ARGV[1], ARGV[4] or ''
if entry ~= '' then
  local handed = ARGV[5] == 'handed'
  local score = handed and pcall('ZSCORE', queue, entry)
  pcall('ZREM', queue, entry)
  if handed and score ~= '0' then
    return 0
  end
end
if token == '' then
  return 0
end

look() -- an expired permit cannot be released
local released = call('ZREM', permits, token)
local limit, held = look()
limit = limit or tonumber(ARGV[2])
local _, untold = handOn(limit - held, limit, ARGV[3] == 'cluster')
if call('ZCARD', permits) == 1 then
  call('DEL', permits)
end
return untold and released == 1 and -1 or released
