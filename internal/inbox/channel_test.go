package inbox

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestChannelNamesTheDatabase: of clients that say which it is. The name of others is that of a
// client of database 0, as earlier versions had it.
func TestChannelNamesTheDatabase(t *testing.T) {
	const uuid = `[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`
	client := redis.NewClient(&redis.Options{DB: 12})
	for name, c := range map[string]struct {
		client redis.UniversalClient
		want   string
	}{
		"database 0":  {redis.NewClient(&redis.Options{}), `^redlatch:` + uuid},
		"database 12": {client, `^redlatch:12:` + uuid},
		"Sentinel":    {redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}, DB: 3}), `^redlatch:3:` + uuid},
		"a Cluster":   {redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}}), `^redlatch:` + uuid},
		"embedded":    {struct{ *redis.Client }{client}, `^redlatch:12:` + uuid},
		"hidden":      {struct{ redis.UniversalClient }{client}, `^redlatch:` + uuid},
		"broken":      {struct{ *redis.Client }{}, `^redlatch:` + uuid},
		"none":        {nil, `^redlatch:` + uuid},
	} {
		require.Regexp(t, c.want, New(c.client).Channel, name)
	}
	for channel, want := range map[string]int{
		"redlatch:8c6f5f3c-0a2b-4a7e-9d3c-3f1f6a2b9c1d":    0,
		"redlatch:12:8c6f5f3c-0a2b-4a7e-9d3c-3f1f6a2b9c1d": 12,
		"redlatch:x": 0, "": 0, "redlatch:": 0, "redlatch:99999999999999999999:x": 0, "redlatch:-1:x": 0,
	} {
		require.Equal(t, want, Database(channel), channel)
	}
}
