-- Compare and delete: gives the permit of a token back, if it has one, and hands all that are free to those who have
-- waited longest.
--
-- KEYS    as semaphore.lua has them
-- ARGV[1] token; empty to release nothing
-- ARGV[2] limit
-- ARGV[3] "cluster" where the answer of PUBLISH does not tell whether the process is there; else empty
-- ARGV[4] the entry of the token, to take it out of the queue; absent or empty: it has none
-- ARGV[5] "handed": release only what was handed to that entry and nobody else has acquired by the token since
--
-- 1: released. 0: the token had no permit. -1: released, but whoever is next could not be told, since PUBLISH is
-- forbidden.

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

look() -- an expired permit was lost
local released = call('ZREM', permits, token)
local limit, held = look()
limit = limit or tonumber(ARGV[2])
local _, untold = handOn(limit - held, limit, ARGV[3] == 'cluster')
if call('ZCARD', permits) == 1 then
  call('DEL', permits)
end
return untold and released == 1 and -1 or released
