-- Acquires a permit for a token. Free permits go to earlier waiters first. If none is left, it returns a holder and can
-- queue an entry for the token. A resend grants the permit again, with a new fence, and keeps the place in the queue.
--
-- KEYS    as in semaphore.lua
-- ARGV[1] token
-- ARGV[2] TTL in ms
-- ARGV[3] limit
-- ARGV[4] "cluster" if the reply to PUBLISH does not say whether the process listens; else empty
-- ARGV[5] the entry to queue; absent: none
-- ARGV[6] set if the entry should already be in the queue
--
-- Granted: the fence as an integer, negative if the token already held a permit.
-- Refused: {what is left in ms of the lease that ends first; its holder}. With an entry also: 1 if the entry is new;
-- 1 if it is the first; seconds and µs of TIME; the tokens of the entry's process that were handed permits.
-- Refused because the holders, or the waiters if nobody holds a permit, have another limit: the error
-- "LIMIT <their limit>".

local token, ttl, limit = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local entry = ARGV[5] and ARGV[3] .. ' ' .. ARGV[5]
local held, wrong = look(limit)
if wrong then
  return wrong
end
local had = leaseEnd(token)
local free = limit - held
if not had and free > 0 then
  local left = handOn(free, limit, ARGV[4] == 'cluster', entry)
  had = left < free and leaseEnd(token) -- the token may have queued before
  free = left
end

if not had and free <= 0 then
  local holder, ends = unpack(call('ZRANGE', permits, 1, 1, 'WITHSCORES'))
  local left = ends and math.ceil((ends - now) / 1000) or 0 -- miniredis expires keys while a script runs
  if not entry then
    return {left, holder}
  end
  local place = ARGV[6] and call('ZSCORE', queue, entry)
  local keeps = place and place ~= '0'
  local fresh, first, refresh = 0, nil, true
  if keeps then
    first = call('ZCOUNT', queue, '(0', '(' .. place) == 0
  else
    -- A new score is the highest + 1 and not the time, since a clock may be set back.
    local last = call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2] or '0'
    fresh = call('ZADD', queue, place and 'CH' or 'NX', last + 1, entry)
    first = fresh == 1 and last == '0'
    refresh = first or (last + 1) % 16 == 0
  end
  if refresh then
    call('PEXPIRE', queue, queueMemory)
  end
  local handed = {}
  if ARGV[6] then
    local _, _, mine = parse(entry)
    for _, other in ipairs(members(0, 0)) do
      local _, _, process, owner = parse(other)
      if process == mine then
        handed[#handed + 1] = owner
      end
    end
  end
  return {left, holder, fresh, first and 1 or 0, tonumber(time[1]), tonumber(time[2]), handed}
end

if had then
  adopted(token) -- a full Redis refuses INCR, but not behind another write of the script
end
local fence
fence, wrong = mint()
if not fence then
  return wrong
end
hold(token, ttl, had, free == limit and limit)
if entry then
  pcall('ZREM', queue, entry)
end
return had and -fence or fence
