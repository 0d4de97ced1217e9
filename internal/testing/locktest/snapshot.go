package locktest

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// older has a server return to older data, in one step. For each key its arguments are the name, the TTL in ms, and the value;
// of a sorted set an empty value, the number of members, and each with its score.
const older = `
for _, key in ipairs(redis.call('KEYS', '*')) do redis.call('DEL', key) end
local i = 1
while ARGV[i] do
  local key, left, value = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  i = i + 3
  if value ~= '' then
    redis.call('SET', key, value)
  else
    for _ = 1, tonumber(ARGV[i]) do
      redis.call('ZADD', key, ARGV[i + 1], ARGV[i + 2])
      i = i + 2
    end
    i = i + 1
  end
  if left ~= '0' then redis.call('PEXPIRE', key, left) end
end
return 1`

// newest returns the arguments of older for the data that a server has.
const newest = `
local all = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
  table.insert(all, key)
  table.insert(all, tostring(math.max(redis.call('PTTL', key), 0)))
  if redis.call('TYPE', key).ok == 'string' then
    table.insert(all, redis.call('GET', key))
  else
    local members = redis.call('ZRANGE', key, '0', '-1', 'WITHSCORES')
    table.insert(all, '')
    table.insert(all, tostring(#members / 2))
    for i = 1, #members, 2 do
      table.insert(all, members[i + 1])
      table.insert(all, members[i])
    end
  end
end
return all`

// Snapshot returns a function that has a server return to the data that it has now, as one that has
// failed over to a replica behind does.
func Snapshot(t *testing.T, c *redis.Client) (restore func()) {
	t.Helper()
	then, err := c.Eval(t.Context(), newest, nil).Slice()
	require.NoError(t, err)
	return func() {
		t.Helper()
		require.NoError(t, c.Eval(t.Context(), older, nil, then...).Err())
	}
}
