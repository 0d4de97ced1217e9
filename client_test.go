package redlatch

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestKindOfClientIsKnown, also if a program has its own type around it. A Ring has no messages, since it keeps channels
// and keys on different servers.
func TestKindOfClientIsKnown(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		client redis.UniversalClient
		want   clientKind
	}{
		{&redis.Client{}, oneServer},
		{struct{ *redis.Client }{}, oneServer},
		{&redis.ClusterClient{}, cluster},
		{struct{ *redis.ClusterClient }{}, cluster},
		{&redis.Ring{}, ring},
		{struct{ *redis.Ring }{}, ring},
	} {
		require.Equal(t, c.want, kindOf(c.client), "%T", c.client)
	}
}
