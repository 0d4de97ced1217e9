-- Runs scripts as a Redis does whose scripts are those of this version of Lua. Its input and output are RESP: an array for a script,
-- with its source, its keys behind their number, and its arguments. It answers with the commands of the script, in arrays that begin
-- with "call", and reads the reply to each. The last array begins with "done", and has the reply of the script.

local function read()
  local line = io.read('*l')
  if not line then os.exit() end
  local kind, rest = string.sub(line, 1, 1), string.sub(line, 2, -2)
  local number = tonumber(rest)
  if kind == ':' then return number end
  if kind == '+' then return {ok = rest} end
  if kind == '-' then return {err = rest} end
  if number < 0 then return false end -- a nil reply
  if kind == '$' then return string.sub(io.read(number + 2), 1, -3) end
  local all = {}
  for i = 1, number do all[i] = read() end
  return all
end

local function write(kind, value) io.write(kind, value, '\r\n') end

local function writeText(text)
  write('$', #text)
  write('', text)
end

-- Redis cuts a number that a script returns. Servers with integers have doubles too, which no reply of ours is.
local function writeReply(value)
  if type(value) == 'number' and math.type and math.type(value) == 'float' then
    write(',', value)
  elseif type(value) == 'number' then
    write(':', string.format('%d', value))
  elseif type(value) == 'string' then
    writeText(value)
  elseif type(value) == 'table' and value.err then
    write('-', value.err)
  elseif type(value) == 'table' then
    write('*', #value)
    for i = 1, #value do writeReply(value[i]) end
  else
    write('$', value and 1 or -1)
  end
end

-- Where numbers are integers or doubles, 5.0 is no integer argument, and a score is a double.
local function pcallRedis(...)
  local words = {...}
  write('*', #words + 1)
  writeText('call')
  for _, word in ipairs(words) do
    if type(word) == 'number' then word = math.type and tostring(word) or string.format('%.17g', word) end
    writeText(word)
  end
  io.flush()
  local reply = read()
  return words[1] == 'ZSCORE' and type(reply) == 'string' and math.type and reply + 0.0 or reply
end

local function raise(...)
  local reply = pcallRedis(...)
  if type(reply) == 'table' and reply.err then error(reply) end
  return reply
end

redis = {pcall = pcallRedis, call = raise, error_reply = function(text) return {err = text} end}

while true do
  local words = read()
  KEYS, ARGV = {}, {}
  for i = 3, #words do
    local to = i - 2 <= tonumber(words[2]) and KEYS or ARGV
    to[#to + 1] = words[i]
  end
  local ran, reply = pcall(assert((loadstring or load)(words[1])))
  if not ran then reply = type(reply) == 'table' and reply or {err = reply} end
  write('*', 2)
  writeText('done')
  writeReply(reply)
  io.flush()
end
