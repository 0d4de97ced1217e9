-- Acquires a permit for a token. Earlier waiters come first, as far as their limits allow. If no permit is left, it returns a holder
-- and can queue an entry for the token. A resend grants the permit again, with a new fence, and keeps the place in the queue.
--
-- ARGV are those of acquire.lua, with the limit behind the TTL, as ARGV[3]. It replies as that does; the holder is the one whose
-- lease ends first, or to a writer, last. With an entry, what is left is the time until the token may fit. A permit that is kept
-- after its release is named only if nobody holds one. If ARGV[5] is empty, the token gets a permit beside that of ARGV[6], a
-- reader, whoever waits. If that has no permit, the reply is 0.

-- include semaphore.lua
local token, limit, latest, entry = ARGV[1], tonumber(ARGV[3]), ARGV[4], ARGV[5]
if entry == '' then prove() end
local wrong = look()
if wrong then return wrong end
local had = leaseEnd(token)
-- include late.lua
if late and not had then return late end
local beside = entry == '' and not had
if beside and not leaseEnd(ARGV[6]) then return 0 end
entry = entry ~= '' and entry

-- enqueue returns 1 if the entry is new, else 0.
local function enqueue()
  local waited, again, try = ARGV[6], ARGV[7] == 'again', redis.call
  -- include queue.lua
  return fresh
end

local fresh, blocked
if not had and not beside and fits(token, limit) and first() then
  fresh = entry and enqueue() -- first: a hand-over can remove all other entries
  local nobody = held == 0
  local more -- the script has done its most
  if mark == '!' then
    local own, entry = entry, nil
    -- include roll_call.lua
  end
  if not more then
    local _
    blocked, _, _, more = handOn(entry, nil, true)
  end
  if more then return {'more', fresh or 0} end
  if nobody and held > 0 and first() then -- others wait
    if mark then redis.call('ZREM', KEYS[3], mark) end
    redis.pcall('ZADD', KEYS[3], string.format('%.0f', now - zero), '!')
  end
  had = leaseEnd(token)
end

if not had and (blocked or not fits(token, limit)) then
  if ended then purge() end
  local holder, ends = named(exclusive(token))
  if entry and ends and limit < held and held < math.huge and not exclusive(token) then ends = freeAt(limit, ends + 0) end
  local left = ends and math.min(math.ceil((ends - now) / 1000), 4e12) or 0
  if entry then
    fresh = fresh or enqueue()
  else
    prove()
  end
  local head, ending
  if entry or blocked then head, ending = first() end
  if head and mark == '!' then -- see roll_call.lua
    local score = entry and redis.call('ZSCORE', KEYS[3], entry) + 0
    if entry and score % 1 == 0 then redis.pcall('ZADD', KEYS[3], string.format('%.1f', score + 0.5), entry) end
  else
    if blocked and not ending or ending and head == entry then keepBack(head) end
  end
  if not entry then return {left, holder} end
  return {left, holder or false, fresh, head == entry and 1 or 0, tonumber(time[1]), tonumber(time[2])}
end

if had or entry then prove() end -- to new holders that do not wait, a full Redis refuses the fence
local tick, failed = mint()
if failed then
  if fresh == 1 then redis.call('ZREM', KEYS[3], entry) end
  return failed
end
hold(token, tonumber(ARGV[2]))
if ended then purge() end
local gone = entry and redis.pcall('ZREM', KEYS[3], entry, '!' .. entry) == 0 or fresh == 1
return not had and gone and ARGV[7] and -tick or tick
