package field_test

import (
	"net"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/locktest"
	"github.com/redlatch/redlatch/internal/testing/redistest"
)

// startCluster returns clients of three masters that share the slots, and their addresses.
func startCluster(t *testing.T) (masters []*redis.Client, addrs []string) {
	t.Helper()
	return clientsOf(t, redistest.StartCluster(t))
}

// clientsOf returns a client of each server, and their addresses.
func clientsOf(t *testing.T, servers []*redistest.Server) (clients []*redis.Client, addrs []string) {
	t.Helper()
	for _, s := range servers {
		clients, addrs = append(clients, s.Client(t)), append(addrs, s.Addr())
	}
	return clients, addrs
}

// meet has a server join others in a cluster.
func meet(t *testing.T, s *redistest.Server, others []*redistest.Server) {
	t.Helper()
	for _, other := range others {
		host, port, err := net.SplitHostPort(other.Addr())
		require.NoError(t, err)
		require.NoError(t, s.Client(t).ClusterMeet(t.Context(), host, port).Err())
	}
}

// agree waits until all servers know three masters, and so many nodes with the replicas.
func agree(t *testing.T, servers []*redistest.Server, nodes int) {
	t.Helper()
	for _, s := range servers {
		c := s.Client(t)
		locktest.Eventually(t, "the cluster is ready", func() bool {
			slots := c.ClusterSlots(t.Context()).Val() //nolint:staticcheck // Redis 6.2 has no CLUSTER SHARDS
			known := 0
			for _, part := range slots {
				known += len(part.Nodes)
			}
			return strings.Contains(c.ClusterInfo(t.Context()).Val(), "cluster_state:ok") && len(slots) == 3 && known == nodes
		})
	}
}

// toCluster returns how to connect to the cluster that has these nodes.
func toCluster(addrs []string) connector {
	return func(t *testing.T) redis.UniversalClient {
		return redistest.NewCluster(t, &redis.ClusterOptions{Addrs: addrs})
	}
}

// TestPlainClientOfAClusterLearnsOfHashTags: a plain client would keep the fences of all locks in
// one key, in another slot than the locks. So would an AutoPipeliner, which has no methods of a
// cluster client. The error says what to do, and nothing is left in Redis. With a prefix that has a
// hash tag, the client works.
func TestPlainClientOfAClusterLearnsOfHashTags(t *testing.T) {
	t.Parallel()
	s := redistest.StartTCP(t, "--cluster-enabled", "yes")
	admin := s.Client(t)
	require.NoError(t, admin.ClusterAddSlotsRange(t.Context(), 0, 16383).Err())
	locktest.Eventually(t, "the cluster is ready", func() bool {
		return strings.Contains(admin.ClusterInfo(t.Context()).Val(), "cluster_state:ok")
	})
	pipelined, err := toCluster([]string{s.Addr()})(t).AutoPipeline()
	require.NoError(t, err)
	for _, client := range []redis.UniversalClient{s.Client(t), pipelined} {
		l := locktest.SetNXPX(t, client)
		_, err := l.TryLock(t.Context(), "k")
		require.ErrorContains(t, err, "CROSSSLOT")
		require.ErrorContains(t, err, "use a cluster client, or a WithKeyPrefix with a hash tag such as {locks}:")
		require.NotErrorIs(t, err, redlatch.ErrNotAcquired)
		require.Zero(t, admin.DBSize(t.Context()).Val())

		for _, key := range []string{"k", "l"} {
			require.NoError(t, locktest.MustLock(t, l, key, redlatch.WithKeyPrefix("{locks}:")).Unlock(t.Context()))
		}
		require.Equal(t, []string{"{locks}:redlatch:fence"}, admin.Keys(t.Context(), "*").Val())
		require.NoError(t, admin.FlushAll(t.Context()).Err())
	}
}
