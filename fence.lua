-- Mints fences from the register, which orders the grants of all locks. A script includes this text where it grants.
--
-- Reads     KEYS[2], the fence register
--           want, how many fences the grant can use, 1 to 64
--           time, the reply to TIME; nil if it is not known yet, and then set
-- Declares  fence and more: the grant has the fences from fence to fence + more; fence is nil if the register fails
--           failed, the error then, else nil
--
-- The register never lags far behind the clock, so fences grow even if it was lost. A block of fences never ends above
-- the clock. If the register was empty, none of them is below the clock.

local registerMemory = 86400000 -- TTL of the register after the clock has set it, ms
local slack = 10000 -- how far the register may lag behind the clock, µs

local block, fence = want, want > 1 and pcall('INCRBY', KEYS[2], want)
if type(fence) ~= 'number' then block, fence = 1, pcall('INCR', KEYS[2]) end
local minted = type(fence) == 'number'
local more, failed = block - 1, nil
if minted and fence >= 2^53 then -- Lua rounds integers above that
  pcall('INCRBY', KEYS[2], -block)
  minted, fence = false, {err = 'overflow'}
end
if not minted then
  failed, fence = fence, nil
  local why = failed.err
  if string.find(why, 'WRONGTYPE') or string.find(why, 'integer') or string.find(why, 'overflow') then
    failed = redis.error_reply('ERR the fence register ' .. KEYS[2]
      .. ' holds something else: delete it, or use WithKeyPrefix')
  end
else
  time = time or call('TIME')
  local now = time[1] * 1000000 + time[2]
  if fence - more < now - slack then
    if fence == block then more = 0 end
    fence = now
    call('SET', KEYS[2], format('%.0f', fence), 'PX', registerMemory)
  elseif more > 0 and fence > now then
    local excess = math.min(fence - now, more)
    call('INCRBY', KEYS[2], -excess)
    fence, more = fence - excess, more - excess
  end
  fence = fence - more
end
