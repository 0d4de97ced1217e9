package field_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/locktest"
	"github.com/redlatch/redlatch/internal/testing/redistest"
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
	c := redistest.NewFailover(t, &o)
	require.NoError(t, c.Ping(t.Context()).Err()) // it has found the primary, which may take a while
	return c
}

// connectRouted returns a client that treats primary and replica as a cluster, and reads from
// either.
func (r *replicated) connectRouted(t *testing.T) redis.UniversalClient {
	o := r.options
	o.RouteRandomly = true
	c := locktest.Closing(t, redis.NewFailoverClusterClient(&o))
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
// replica has its keys. The holder keeps its lock, and the new primary serves the waiter after
// that. The holder loses its lock only if the failover took longer than its lease.
func TestFailOverKeepsWhatWasReplicated(t *testing.T) {
	t.Parallel()
	const ttl = 6 * time.Second
	r := startReplicated(t)
	renewed := make(chan redlatch.Event, 100)
	lock := locktest.MustLock(t, locktest.SetNXPX(t, r.connect(t)), "k", redlatch.WithTTL(ttl),
		redlatch.WithHooks(redlatch.Hooks{Renewed: func(_ context.Context, e redlatch.Event) { renewed <- e }}))
	next := locktest.WaitInLine(t, locktest.SetNXPX(t, r.connect(t)), "k")
	r.catchesUp(t)
	began := time.Now()
	r.primary.Kill()
	for len(renewed) > 0 { // renewals before that
		<-renewed
	}
	select {
	case <-renewed:
		require.NoError(t, lock.Err())
		require.Equal(t, string(lock.Token()), r.replica.Client(t).Get(t.Context(), "k").Val())
		require.Empty(t, next, "two owners")
		require.NoError(t, lock.Unlock(t.Context()))
	case <-lock.Done():
		require.Greater(t, time.Since(began), ttl/2, "Redis has forgotten it")
	}
	successor := <-next
	require.NotNil(t, successor)
	require.Greater(t, successor.Fence(), lock.Fence())
	require.NoError(t, successor.Unlock(t.Context()))
}
