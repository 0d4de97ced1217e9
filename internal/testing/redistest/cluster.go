package redistest

import (
	"strings"
	"testing"
)

const clusterMasters, clusterSlots = 3, 16384

// StartCluster returns three masters of a Redis Cluster that share its slots.
func StartCluster(tb testing.TB, args ...string) []*Server {
	tb.Helper()
	var masters []*Server
	for i := range clusterMasters {
		s := StartTCP(tb, append(args, "--cluster-enabled", "yes")...)
		// As redis-cli does: masters with the same epoch settle on others when they meet, and one
		// that does so while a test moves its slot takes the slot back.
		slots := []any{"cluster", "addslots"} // Redis 6.2 takes no ranges
		for slot := i * clusterSlots / clusterMasters; slot < (i+1)*clusterSlots/clusterMasters; slot++ {
			slots = append(slots, slot)
		}
		words := [][]any{{"cluster", "set-config-epoch", i + 1}, slots}
		for _, other := range masters {
			host, port := hostPort(tb, other)
			words = append(words, []any{"cluster", "meet", host, port})
		}
		for _, w := range words {
			if err := command(tb, s, w...); err != nil {
				tb.Fatalf("redistest: %v: %v", w, err)
			}
		}
		masters = append(masters, s)
	}
	for _, s := range masters {
		c := s.Client(tb)
		until(tb, "the cluster is ready", func() bool {
			// Redis 6.2 has no CLUSTER SHARDS.
			return strings.Contains(c.ClusterInfo(tb.Context()).Val(), "cluster_state:ok") &&
				len(c.ClusterSlots(tb.Context()).Val()) == clusterMasters //nolint:staticcheck // see above
		})
	}
	return masters
}
