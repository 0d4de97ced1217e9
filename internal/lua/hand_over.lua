-- Hands the lock to the first entry in the queue whose process listens, for the claim in it, and sends a message.
-- Entries before it leave the queue, at most 64. A script includes this text where the lock is free, or about to be.
--
-- Reads     KEYS, as in acquire.lua
--           time, the reply to TIME; nil if it is not known yet, and then set
--           entry, the first in the queue; nil or false: nothing is handed over
--           own, the entry before which it stops; nil: none
--           looks, set if this is no release: it leaves a mark, see roll_call.lua
-- Changes   entry, to the one where it has stopped
--           holder, to the token that has the lock
-- Declares  handed, set if entry has the lock, and has left the queue
--           minted, the tick of its fence
--           skipped, how many entries have left before it
--           silent, set if PUBLISH is refused. An entry without a dash has no lock then, although the key holds its
--           token: nobody would look soon
--
-- If the fence register fails, nobody gets the lock. The next acquire reports that.

local handed, minted, silent, skipped = nil, nil, nil, 0
while entry and entry ~= own and skipped < 64 do
  -- include listens.lua
  if listens then
    if not time then redis.pcall('ZREM', KEYS[3], '~') end -- behind a write, a full Redis accepts the others
    -- include fence.lua
    if failed then break end
    redis.call('SET', KEYS[1], token, 'PX', claim)
    -- include announce.lua
    handed, minted, silent = dash ~= '' or not untold, tick, untold
    if handed then
      holder = token
      if looks and redis.call('ZRANGE', KEYS[3], '0', '1')[2] then -- others wait
        redis.pcall('ZADD', KEYS[3], string.format('%.0f', time[1] * 1000000 + time[2] - 9e15), '!')
      end
      redis.call('ZREM', KEYS[3], entry)
    end
    break
  end
  redis.call('ZREM', KEYS[3], entry)
  skipped = skipped + 1
  entry = redis.pcall('ZRANGE', KEYS[3], '0', '0')[1] -- an error: the queue is empty, and gone while its slot moves
end
