package locktest

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// older has a server return to older data, in one step. For each key its arguments are the name, the TTL in ms, and the value;
// of a sorted set an empty value, the number of members, and each with its score.
var older = redis.NewScript(`
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
return 1`)

// Snapshot returns a function that has a server return to the data that it has now, as one that has
// failed over to a replica behind does.
func Snapshot(t *testing.T, c *redis.Client) (restore func()) {
	t.Helper()
	keys, err := c.Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	var then []any
	for _, key := range keys {
		left := max(c.PTTL(t.Context(), key).Val().Milliseconds(), 0)
		if c.Type(t.Context(), key).Val() == "string" {
			then = append(then, key, left, c.Get(t.Context(), key).Val())
			continue
		}
		members := c.ZRangeWithScores(t.Context(), key, 0, -1).Val()
		then = append(then, key, left, "", len(members))
		for _, z := range members {
			then = append(then, z.Score, z.Member)
		}
	}
	return func() {
		t.Helper()
		require.NoError(t, older.Eval(t.Context(), c, nil, then...).Err())
	}
}
