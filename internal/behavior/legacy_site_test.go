package behavior_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/faultproxy"
	"github.com/redlatch/redlatch/internal/locktest"
)

// proxied returns a client that has made its connection, and the proxy that it goes through.
func proxied(t *testing.T, s *locktest.Site) (*faultproxy.Proxy, *redis.Client) {
	p := faultproxy.New(t, s.Options.Network, s.Options.Addr)
	c := p.Client(t)
	require.NoError(t, c.Ping(t.Context()).Err())
	return p, c
}

// everything returns all keys and values.
func everything(t *testing.T, s *locktest.Site) map[string]string {
	all := make(map[string]string)
	for _, key := range s.Direct.Keys(t.Context(), "*").Val() {
		all[key] = s.Direct.Get(t.Context(), key).Val()
	}
	return all
}

// setIn makes key hold value.
func setIn(t *testing.T, s *locktest.Site, key string, value any) {
	require.NoError(t, s.Direct.Set(t.Context(), key, value, 0).Err())
}

// stampIn returns the time in key.
func stampIn(t *testing.T, s *locktest.Site, key string) int64 {
	n, err := s.Direct.Get(t.Context(), key).Int64()
	require.NoError(t, err)
	return n
}
