package system_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// replicated is a primary and a replica with sentinels, which promote it.
type replicated struct {
	primary, replica *redistest.Server
	options          redis.FailoverOptions
}

func startReplicated(t *testing.T) *replicated {
	t.Helper()
	primary := redistest.StartTCP(t)
	r := &replicated{primary: primary, replica: redistest.StartReplica(t, primary)}
	r.options.MasterName = "main"
	for _, s := range redistest.StartSentinels(t, r.options.MasterName, primary) {
		r.options.SentinelAddrs = append(r.options.SentinelAddrs, s.Addr())
	}
	return r
}

// connect returns a client that asks the sentinels for the primary.
func (r *replicated) connect(t *testing.T) redis.UniversalClient {
	o := r.options
	c := redis.NewFailoverClient(&o)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.Ping(t.Context()).Err()) // it has found the primary, which may take a while
	return c
}

// connectRouted returns a client that treats primary and replica as a cluster, and reads from either.
func (r *replicated) connectRouted(t *testing.T) redis.UniversalClient {
	o := r.options
	o.RouteRandomly = true
	c := redis.NewFailoverClusterClient(&o)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.Ping(t.Context()).Err())
	return c
}

// catchesUp waits until the replica has all that was written so far.
func (r *replicated) catchesUp(t *testing.T) {
	t.Helper()
	now := strconv.FormatInt(time.Now().UnixNano(), 10)
	require.NoError(t, r.primary.Client(t).Set(t.Context(), "written", now, time.Minute).Err())
	locktest.Eventually(t, "the replica has it", func() bool { return r.replica.Client(t).Get(t.Context(), "written").Val() == now })
}

// TestFailOverKeepsWhatWasReplicated: the primary dies while a lock is held and waited for, and the
// replica has its keys. The holder keeps its lock, nobody else acquires it, and the new primary
// serves the waiter. The holder loses its lock only if the failover took longer than its lease.
func TestFailOverKeepsWhatWasReplicated(t *testing.T) {
	t.Parallel()
	const ttl = 6 * time.Second
	r := startReplicated(t)
	renewed := make(chan redlatch.Event, 100)
	lock := locktest.MustLock(t, locktest.SetNXPX(t, r.connect(t)), "k", redlatch.WithTTL(ttl),
		redlatch.WithHooks(redlatch.Hooks{Renewed: func(e redlatch.Event) { renewed <- e }}))
	next, other := locktest.WaitInLine(t, locktest.SetNXPX(t, r.connect(t)), "k"), locktest.SetNXPX(t, r.connect(t))
	r.catchesUp(t)
	began := time.Now()
	r.primary.Kill()

	var trying sync.WaitGroup
	defer trying.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	trying.Go(func() {
		for ctx.Err() == nil {
			if stolen, err := other.TryLock(ctx, "k"); err == nil {
				if lock.Err() == nil {
					t.Error("two owners")
				}
				_ = stolen.Unlock(ctx)
			}
		}
	})
	select {
	case <-renewed:
		require.NoError(t, lock.Err())
		require.Equal(t, lock.Token(), r.replica.Client(t).Get(t.Context(), "k").Val())
		require.NoError(t, lock.Unlock(t.Context()))
	case <-lock.Done():
		require.Greater(t, time.Since(began), ttl/2, "Redis has forgotten it")
	}
	successor := <-next
	require.NotNil(t, successor)
	require.Greater(t, successor.Fence(), lock.Fence())
	require.NoError(t, successor.Unlock(t.Context()))
}

// TestFailOverForgetsWhatWasNotReplicated: replication is asynchronous, so a grant may never reach the
// replica that is promoted. Then there are two owners until the first one notices, by its next renewal.
// The second has the higher fence and is left alone.
func TestFailOverForgetsWhatWasNotReplicated(t *testing.T) {
	t.Parallel()
	r := startReplicated(t)
	l, other := locktest.SetNXPX(t, r.connect(t)), locktest.SetNXPX(t, r.connect(t))
	r.replica.Pause() // what the primary writes from now on never reaches it
	primary := r.primary.Client(t)
	require.NoError(t, primary.ClientKillByFilter(t.Context(), "TYPE", "replica").Err())
	first := locktest.MustLock(t, l, "k", redlatch.WithTTL(15*time.Second))
	require.Contains(t, primary.Info(t.Context(), "replication").Val(), "connected_slaves:0")
	r.primary.Kill()
	r.replica.Resume()

	second := locktest.LockSoon(t, other, "k")
	require.NoError(t, first.Err(), "two owners")
	require.Greater(t, second.Fence(), first.Fence())
	<-first.Done()
	require.ErrorIs(t, first.Err(), redlatch.ErrLost)
	require.NoError(t, second.Err())
	require.NoError(t, second.Unlock(t.Context()))
}
