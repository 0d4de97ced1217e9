-- Returns who holds permits, without changing anything.
--
-- KEYS    as in semaphore.lua
-- ARGV[1] limit
--
-- Returns {the token whose lease ends first or false, what is left of that lease in ms, the length of the queue, the
-- number of holders}. A value that keeps a permit is named only if nobody else holds one. Refused because of another
-- limit: the error of semaphore_acquire.lua.

-- include semaphore.lua
local wrong = check(tonumber(ARGV[1]))
if wrong then return wrong end
local alive = format('(%.0f', now)
local function kept(token) return string.find(token, 'redlatch:kept:', 1, true) == 1 end
local first = call('ZRANGEBYSCORE', permits, alive, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
if first[1] and kept(first[1]) then
  local all = call('ZRANGEBYSCORE', permits, alive, '+inf', 'WITHSCORES')
  for i = 1, #all, 2 do
    if not kept(all[i]) then
      first = {all[i], all[i + 1]}
      break
    end
  end
end
return {first[1] or false, first[1] and math.ceil((first[2] - now) / 1000) or 0,
  call('ZCOUNT', queue, '(0', '+inf'), call('ZCOUNT', permits, alive, '+inf')}
