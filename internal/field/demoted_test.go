package field_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/locktest"
	"github.com/redlatch/redlatch/internal/testing/redistest"
)

// moved is a primary and its replica. Commands reach one of them, and subscriptions stay where they
// are: so it is when the replica is promoted and old connections stay open.
type moved struct {
	old, promoted *redistest.Server
	at            atomic.Pointer[redistest.Server]
}

func startMoved(t *testing.T) *moved {
	t.Helper()
	old := redistest.StartTCP(t)
	m := &moved{old: old, promoted: redistest.StartReplica(t, old)}
	m.at.Store(old)
	return m
}

// client returns the client of a process. It dials anew for each command.
func (m *moved) client(t *testing.T) *redis.Client {
	return locktest.Closing(t, redis.NewClient(&redis.Options{
		ConnMaxLifetime: time.Nanosecond,
		Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
			s := m.at.Load()
			return new(net.Dialer).DialContext(ctx, s.Network(), s.Addr())
		},
	}))
}

// promote makes the replica a primary that has all that was written so far.
func (m *moved) promote(t *testing.T) {
	t.Helper()
	(&replicated{primary: m.old, replica: m.promoted}).catchesUp(t)
	require.NoError(t, m.promoted.Client(t).ReplicaOf(t.Context(), "no", "one").Err())
}

// demote makes the old primary a replica of the server at addr. From now on, commands reach the
// promoted one.
func (m *moved) demote(t *testing.T, addr string) {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	require.NoError(t, m.old.Client(t).ReplicaOf(t.Context(), host, port).Err())
	m.at.Store(m.promoted)
}

// unreachable is an address that nobody answers, so a replica of it keeps its old data.
const unreachable = "127.0.0.1:1"

// TestDemotedServerIsNotBelieved: replication is asynchronous, so the promoted primary may not have
// the last renewal. Then there are two owners until the first one notices, by its next renewal. The
// second has the higher fence. Commands that reach the old primary once it is demoted neither renew
// the lock that it has, nor lose the one that it has not.
func TestDemotedServerIsNotBelieved(t *testing.T) {
	t.Parallel()
	for name, open := range locktest.Strategies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := startMoved(t)
			var renewed, failed atomic.Int64
			hooks := redlatch.WithHooks(redlatch.Hooks{
				Renewed: func(context.Context, redlatch.Event) { renewed.Add(1) },
				RenewFailed: func(_ context.Context, e redlatch.Event) {
					if e.Key == "other" {
						failed.Add(1)
					}
				},
			})
			l, err := open(m.client(t), locktest.Patience, redlatch.WithTTL(locktest.BriefTTL), hooks)
			require.NoError(t, err)
			first := locktest.MustLock(t, l, "k")
			m.promote(t)
			require.NoError(t, first.Extend(t.Context(), time.Hour)) // the key ends before that on the new primary
			next, err := open(m.promoted.Client(t), locktest.Patience)
			require.NoError(t, err)
			second, err := next.Lock(t.Context(), "k")
			require.NoError(t, err)
			require.NoError(t, first.Err(), "two primaries, two owners")
			if name != "LegacySetNX" {
				require.Greater(t, second.Fence(), first.Fence())
			}

			m.demote(t, unreachable)
			other := locktest.MustLock(t, l, "other")
			m.at.Store(m.old)
			renewed.Store(0)
			locktest.Eventually(t, "renewals reach the old primary", func() bool { return failed.Load() > 0 })
			require.Zero(t, renewed.Load())
			require.NoError(t, other.Err())
			m.at.Store(m.promoted)
			locktest.Eventually(t, "the other lock is renewed", func() bool { return renewed.Load() > 0 })
			<-first.Done()
			require.ErrorIs(t, first.Err(), redlatch.ErrLost)

			m.at.Store(m.old)
			time.AfterFunc(300*time.Millisecond, func() { m.at.Store(m.promoted) })
			require.NoError(t, other.Unlock(t.Context()))
			require.Zero(t, m.promoted.Client(t).Exists(t.Context(), "other").Val())
			require.NoError(t, second.Unlock(t.Context()))
		})
	}
}

// TestFailOverMakesNoSecondOwner: after a failover, the subscription of a waiter stays on the
// demoted primary, which gets all messages from the new one. PUBLISH on the new primary does not
// count that waiter. So the lock goes to somebody else, and only to them. The waiter is served
// after that.
func TestFailOverMakesNoSecondOwner(t *testing.T) {
	t.Parallel()
	m := startMoved(t)
	// A lease of an hour: nobody is served by its end.
	locker := func() redlatch.Locker { return locktest.SetNXPX(t, m.client(t), locktest.LongTTL) }
	lock := locktest.MustLock(t, locker(), "k")
	channels := func(s *redistest.Server) int {
		return len(s.Client(t).PubSubChannels(t.Context(), "redlatch:*").Val())
	}
	first := locktest.WaitInLine(t, locker(), "k")
	locktest.Eventually(t, "the first waiter has subscribed", func() bool { return channels(m.old) == 1 })
	m.promote(t)
	m.demote(t, m.promoted.Addr())
	locktest.Eventually(t, "the demoted server replicates", func() bool {
		return m.old.Client(t).InfoMap(t.Context(), "replication").Item("Replication", "master_link_status") == "up"
	})
	second := locktest.WaitInLine(t, locker(), "k")
	locktest.Eventually(t, "the second waiter has subscribed", func() bool { return channels(m.promoted) == 1 })

	require.NoError(t, lock.Unlock(t.Context()))
	fences := map[uint64]bool{lock.Fence(): true}
	for first != nil || second != nil {
		select {
		case lock = <-first:
			first = nil
		case lock = <-second:
			second = nil
		}
		require.NotNil(t, lock)
		require.False(t, fences[lock.Fence()], "two locks have fence %d", lock.Fence())
		fences[lock.Fence()] = true
		for begin := time.Now(); time.Since(begin) < time.Second; <-time.After(time.Millisecond) { // a second owner would come meanwhile
			require.True(t, len(first)+len(second) == 0 || lock.Err() != nil, "two owners")
		}
		require.NoError(t, lock.Unlock(t.Context()))
	}
}
