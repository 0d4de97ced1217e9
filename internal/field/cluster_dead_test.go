package field_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/locktest"
	"github.com/redlatch/redlatch/internal/testing/redistest"
)

// startFailingOver returns three masters, then a replica of each. The cluster promotes a replica
// some seconds after its master has died.
func startFailingOver(t *testing.T) (servers []*redistest.Server) {
	t.Helper()
	args := []string{"--cluster-node-timeout", "1500", "--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0"}
	servers = redistest.StartCluster(t, args...)
	for _, master := range slices.Clone(servers) {
		s := redistest.StartTCP(t, append(args, "--cluster-enabled", "yes")...)
		c := s.Client(t)
		meet(t, s, servers)
		id := master.Client(t).Do(t.Context(), "cluster", "myid").Val()
		locktest.Eventually(t, "it is a replica", func() bool { return c.Do(t.Context(), "cluster", "replicate", id).Err() == nil })
		locktest.Eventually(t, "it has replicated", func() bool {
			return strings.Contains(c.Info(t.Context(), "replication").Val(), "master_link_status:up")
		})
		servers = append(servers, s)
	}
	agree(t, servers, 6)
	return servers
}

// TestDeadMasterOfAClusterCostsWhatItsPromotionTakes: the master that has the slot is killed. Once
// another client, which reads the slots all the time, is served again, so are calls of a client
// with the defaults of go-redis: the next attempt succeeds, and the holder can extend its lock. The
// waiter is handed it.
func TestDeadMasterOfAClusterCostsWhatItsPromotionTakes(t *testing.T) {
	t.Parallel()
	servers := startFailingOver(t)
	var addrs []string
	for _, s := range servers {
		addrs = append(addrs, s.Addr())
	}
	control := locktest.Closing(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, ClusterStateReloadInterval: time.Nanosecond}))
	ours := func() redis.UniversalClient {
		c := toCluster(addrs)(t)
		require.NoError(t, c.Ping(t.Context()).Err()) // it has the slots
		return c
	}
	embedded := struct{ *redis.ClusterClient }{ours().(*redis.ClusterClient)}
	holder := locktest.MustLock(t, locktest.SetNXPX(t, ours()), "{k}1", locktest.LongTTL)
	got := locktest.WaitInLine(t, locktest.SetNXPX(t, ours()), "{k}1")
	others := []redlatch.Locker{locktest.SetNXPX(t, ours()), locktest.Semaphore(t, embedded, 1)}
	for i, l := range others { // each has used the master
		locktest.MustLock(t, l, "{k}other"+string(rune('0'+i)))
	}
	slot := int(servers[0].Client(t).ClusterKeySlot(t.Context(), "{k}").Val())
	master := servers[slot*3/16384]
	require.Positive(t, master.Client(t).Wait(t.Context(), 1, 10*time.Second).Val())
	master.Kill()
	killed := time.Now()
	locktest.Eventually(t, "the cluster serves the slot", func() bool { return control.Set(t.Context(), "{k}control", 1, time.Minute).Err() == nil })
	served := time.Since(killed)
	require.NoError(t, holder.Extend(t.Context(), 2*time.Hour))
	for i, l := range others {
		lock, err := l.TryLock(t.Context(), "{k}new"+string(rune('0'+i)))
		require.NoError(t, err)
		require.NoError(t, lock.Unlock(t.Context()))
	}
	t.Logf("the cluster serves after %v, redlatch after %v", served, time.Since(killed))
	require.NoError(t, holder.Unlock(t.Context()))
	next := <-got
	require.NotNil(t, next)
	require.NoError(t, next.Unlock(t.Context()))
}
