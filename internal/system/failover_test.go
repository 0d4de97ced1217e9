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

// connectors are the kinds of clients that ask sentinels.
func (r *replicated) connectors() map[string]connector {
	return map[string]connector{"plain": r.connect, "routed": r.connectRouted}
}

// catchesUp waits until the replica has all that was written so far.
func (r *replicated) catchesUp(t *testing.T) {
	t.Helper()
	now := strconv.FormatInt(time.Now().UnixNano(), 10)
	require.NoError(t, r.primary.Client(t).Set(t.Context(), "written", now, time.Minute).Err())
	locktest.Eventually(t, "the replica has it", func() bool { return r.replica.Client(t).Get(t.Context(), "written").Val() == now })
}

// TestFailOverKeepsWhatWasReplicated: the primary dies while locks are held and waited for, and the
// replica has their keys. The holders keep their locks, nobody else acquires them, and the new primary
// serves the waiters. A holder loses its lock only if the failover took longer than its lease.
func TestFailOverKeepsWhatWasReplicated(t *testing.T) {
	t.Parallel()
	const ttl = 6 * time.Second
	r := startReplicated(t)
	type held struct {
		lock    *redlatch.Lock
		renewed chan redlatch.Event
		lost    chan redlatch.Event
		next    <-chan *redlatch.Lock
		other   redlatch.Locker
	}
	holders := make(map[string]*held)
	for name, connect := range r.connectors() {
		h := &held{renewed: make(chan redlatch.Event, 100), lost: make(chan redlatch.Event, 1), other: locktest.SetNXPX(t, connect(t))}
		l := locktest.SetNXPX(t, connect(t), redlatch.WithTTL(ttl), redlatch.WithHooks(redlatch.Hooks{
			Renewed: func(e redlatch.Event) { h.renewed <- e },
			Lost:    func(e redlatch.Event) { h.lost <- e },
		}))
		h.lock = locktest.MustLock(t, l, name)
		h.next = locktest.WaitInLine(t, locktest.SetNXPX(t, connect(t)), name)
		holders[name] = h
	}
	r.catchesUp(t)
	r.primary.Kill()

	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for name, h := range holders {
		wg.Go(func() {
			for h.lock.Err() == nil && ctx.Err() == nil {
				lock, err := h.other.TryLock(ctx, name)
				if err == nil {
					if h.lock.Err() == nil {
						t.Errorf("%s: two owners", name)
					}
					_ = lock.Unlock(ctx)
				}
			}
		})
	}
	for name, h := range holders {
		select {
		case <-h.renewed:
			require.NoError(t, h.lock.Err(), name)
			require.Equal(t, h.lock.Token(), r.replica.Client(t).Get(t.Context(), name).Val(), name)
			require.NoError(t, h.lock.Unlock(t.Context()), name)
		case e := <-h.lost:
			require.ErrorIs(t, h.lock.Unlock(t.Context()), redlatch.ErrLost, name)
			require.Greater(t, e.Elapsed, ttl*9/10, "%s: Redis has forgotten it", name)
		}
		lock := <-h.next
		require.NotNil(t, lock, name)
		require.Greater(t, lock.Fence(), h.lock.Fence(), name)
		require.NoError(t, lock.Unlock(t.Context()), name)
	}
}

// TestFailOverForgetsWhatWasNotReplicated: replication is asynchronous, so a grant may never reach the
// replica that is promoted. Then there are two owners until the first one notices, by its next renewal
// or by Unlock. The second has the higher fence and is left alone.
func TestFailOverForgetsWhatWasNotReplicated(t *testing.T) {
	t.Parallel()
	r := startReplicated(t)
	l, other := locktest.SetNXPX(t, r.connect(t)), locktest.SetNXPX(t, r.connect(t))

	r.replica.Pause() // what the primary writes from now on never reaches it
	primary := r.primary.Client(t)
	require.NoError(t, primary.ClientKillByFilter(t.Context(), "TYPE", "replica").Err())
	fixed := locktest.MustLock(t, l, "fixed", redlatch.WithoutRenewal(), redlatch.WithTTL(time.Minute))
	renewed := locktest.MustLock(t, l, "renewed", redlatch.WithTTL(6*time.Second))
	require.Contains(t, primary.Info(t.Context(), "replication").Val(), "connected_slaves:0")
	r.primary.Kill()
	r.replica.Resume()

	second := locktest.LockSoon(t, other, "fixed")
	require.NoError(t, fixed.Err(), "it cannot know yet")
	require.NoError(t, second.Err(), "two owners")
	require.Greater(t, second.Fence(), fixed.Fence())
	require.ErrorIs(t, fixed.Unlock(t.Context()), redlatch.ErrLost)
	require.Equal(t, second.Token(), r.replica.Client(t).Get(t.Context(), "fixed").Val())
	require.NoError(t, second.Unlock(t.Context()))

	third := locktest.LockSoon(t, other, "renewed")
	require.Greater(t, third.Fence(), renewed.Fence())
	<-renewed.Done()
	require.ErrorIs(t, renewed.Err(), redlatch.ErrLost)
	require.NoError(t, third.Err())
	require.NoError(t, third.Unlock(t.Context()))
}
