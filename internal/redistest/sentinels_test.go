package redistest

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestReplicaHasWhatItsPrimaryHas(t *testing.T) {
	primary := StartTCP(t)
	require.NoError(t, primary.Client(t).Set(t.Context(), "k", "v", 0).Err())
	replica := StartReplica(t, primary)
	require.Equal(t, "v", replica.Client(t).Get(t.Context(), "k").Val())
	require.ErrorContains(t, replica.Client(t).Set(t.Context(), "k", "w", 0).Err(), "READONLY")
}

func TestSentinelsPromoteTheReplica(t *testing.T) {
	primary := StartTCP(t)
	replica := StartReplica(t, primary)
	var addrs []string
	for _, s := range StartSentinels(t, "main", primary) {
		addrs = append(addrs, s.Addr())
	}
	client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "main", SentinelAddrs: addrs})
	t.Cleanup(func() { _ = client.Close() })
	require.NoError(t, client.Set(t.Context(), "k", "v", 0).Err())
	require.EqualValues(t, 1, client.Wait(t.Context(), 1, startLimit).Val())
	primary.Kill()
	until(t, "the replica is the primary", func() bool {
		return client.Set(t.Context(), "k", "w", 0).Err() == nil
	})
	require.Equal(t, "w", replica.Client(t).Get(t.Context(), "k").Val())
}
