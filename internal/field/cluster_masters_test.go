package field_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/locktest"
	"github.com/redlatch/redlatch/internal/testing/redistest"
)

// Hash tags of keys, by the number of their master in [redistest.StartCluster].
const onMaster0, onMaster1, onMaster2 = "{bar}", "{c}", "{foo}"

// partly has the other masters of a Cluster go on while one is silent.
var partly = []string{"--cluster-require-full-coverage", "no"}

// ages is an op timeout that is longer than other calls take on a busy machine.
var ages = redlatch.WithOpTimeout(time.Minute)

// turns has several callers take a lock each, many times. Nobody else wants these locks.
func turns(t *testing.T, l redlatch.Locker, tag string) {
	t.Helper()
	var callers sync.WaitGroup
	for i := range 8 {
		callers.Go(func() {
			for range 20 {
				lock, err := l.Lock(t.Context(), fmt.Sprint(tag, "turns", i))
				if err == nil {
					err = lock.Unlock(t.Context())
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	callers.Wait()
}

// waiting has many callers wait for a silent master. They wait until end is called, and fail then.
func waiting(t *testing.T, callers int, call func(ctx context.Context, i int) error) (end func()) {
	t.Helper()
	var over atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			if call(ctx, i) == nil {
				t.Error("it is silent")
			}
			over.Add(1)
		})
	}
	return func() {
		t.Helper()
		require.Zero(t, over.Load(), "they wait")
		cancel()
		all.Wait()
	}
}

// TestSilentMasterOfAClusterHoldsUpNoOther: many calls wait for it, and those of other masters go on.
// The strategies share the client.
func TestSilentMasterOfAClusterHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	masters := redistest.StartCluster(t, partly...)
	client := toCluster([]string{masters[0].Addr(), masters[1].Addr()})(t)
	var lockers []redlatch.Locker
	for name, open := range locktest.Strategies {
		l, err := open(client, ages, locktest.LongTTL, redlatch.WithKeyPrefix(name))
		require.NoError(t, err)
		for _, tag := range []string{onMaster0, onMaster1, onMaster2} {
			require.NoError(t, locktest.MustLock(t, l, tag).Unlock(t.Context()))
		}
		lockers = append(lockers, l)
	}
	masters[2].Pause()
	defer masters[2].Resume()
	end := waiting(t, 100*len(lockers), func(ctx context.Context, i int) error {
		_, err := lockers[i%len(lockers)].Lock(ctx, fmt.Sprint(onMaster2, i))
		return err
	})
	for _, l := range lockers {
		turns(t, l, onMaster0)
		turns(t, l, onMaster1)
	}
	end()
}

// replicaOf starts a replica of the first master.
func replicaOf(t *testing.T, masters []*redistest.Server) {
	t.Helper()
	replica := redistest.StartTCP(t, append(partly, "--cluster-enabled", "yes", "--repl-diskless-sync-delay", "0")...)
	meet(t, replica, masters)
	id := masters[0].Client(t).Do(t.Context(), "cluster", "myid").Val()
	locktest.Eventually(t, "it is a replica", func() bool {
		return replica.Client(t).Do(t.Context(), "cluster", "replicate", id).Err() == nil
	})
}

// TestSilentMasterOfAClusterHoldsUpNoNewClient: go-redis asks one that it picks at random what a
// command is, unless it need not know, and waits for the answer with all calls of the client.
func TestSilentMasterOfAClusterHoldsUpNoNewClient(t *testing.T) {
	t.Parallel()
	masters := redistest.StartCluster(t, partly...)
	replicaOf(t, masters)
	confirmed := func(within time.Duration) redlatch.Option { return redlatch.WithReplicas(1, within) }
	l := locktest.SetNXPX(t, masters[0].Client(t), redlatch.WithKeyPrefix(onMaster0), confirmed(time.Second))
	locktest.LockSoon(t, l, "the replica is ready")
	masters[2].Pause()
	defer masters[2].Resume()
	for range 6 {
		for _, opts := range [][]redlatch.Option{nil, {confirmed(time.Minute)}} {
			client := locktest.Closing(t, redis.NewClusterClient(&redis.ClusterOptions{
				Addrs: []string{masters[0].Addr(), masters[1].Addr()}, ReadTimeout: time.Hour,
			}))
			lock := locktest.MustLock(t, locktest.SetNXPX(t, client, append(opts, ages, locktest.LongTTL)...), onMaster0)
			require.NoError(t, lock.Extend(t.Context(), time.Hour))
			require.NoError(t, lock.Unlock(t.Context()))
		}
	}
}

// TestSilentMasterOfAClusterHoldsUpNoConfirmation: many calls wait for it, and those of another master
// whose replica confirms them go on.
func TestSilentMasterOfAClusterHoldsUpNoConfirmation(t *testing.T) {
	t.Parallel()
	masters := redistest.StartCluster(t, partly...)
	replicaOf(t, masters)
	client := toCluster([]string{masters[0].Addr(), masters[1].Addr()})(t)
	l := locktest.SetNXPX(t, client, ages, locktest.LongTTL, redlatch.WithReplicas(1, time.Second))
	require.NoError(t, locktest.LockSoon(t, l, onMaster0).Unlock(t.Context()))
	masters[2].Pause()
	defer masters[2].Resume()
	end := waiting(t, 100, func(ctx context.Context, i int) error {
		_, err := l.Lock(ctx, fmt.Sprint(onMaster2, i))
		return err
	})
	turns(t, l, onMaster0)
	end()
}

// TestRedirectionHoldsUpNoOther: the slot of some held locks moves, and the master that has the keys by
// now is silent. Other locks of the master that redirects go on. When the other one is back, the locks
// are still held, and are extended there.
func TestRedirectionHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	servers := redistest.StartCluster(t, partly...)
	masters, addrs := clientsOf(t, servers)
	m := redistest.MoveOf(t, masters, onMaster0)
	l := locktest.SetNXPX(t, toCluster(addrs)(t), ages, locktest.LongTTL)
	var held []*redlatch.Lock
	for i := range 8 {
		held = append(held, locktest.MustLock(t, l, fmt.Sprint(onMaster0, i)))
	}
	m.Announce(t)
	m.Keys(t)
	for _, lock := range held {
		require.NoError(t, lock.Extend(t.Context(), time.Hour))
	}
	servers[1].Pause()
	defer servers[1].Resume()
	end := waiting(t, 20*len(held), func(ctx context.Context, i int) error {
		return held[i%len(held)].Extend(ctx, time.Hour)
	})
	turns(t, l, "{b}") // another slot of the same master
	end()
	servers[1].Resume()
	for _, lock := range held {
		require.NoError(t, lock.Extend(t.Context(), time.Hour))
	}
	m.Finish(t)
	for _, lock := range held {
		require.NoError(t, lock.Unlock(t.Context()))
	}
}
