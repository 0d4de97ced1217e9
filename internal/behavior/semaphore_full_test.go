package behavior_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
)

// setFull makes a server refuse commands that need memory, or accept them again.
func setFull(t *testing.T, direct *redis.Client, full bool) {
	t.Helper()
	limit := "0"
	if full {
		limit = "1"
	}
	require.NoError(t, direct.ConfigSet(t.Context(), "maxmemory", limit).Err())
}

// TestLocksSurviveAFullRedis: on a full Redis locks are renewed, extended, released and handed on.
// Nothing new is granted.
func TestLocksSurviveAFullRedis(t *testing.T) {
	t.Parallel()
	onQueues(t, func(t *testing.T, newLocker newLockerFunc) {
		t.Parallel()
		s := redistest.Start(t)
		direct := s.Client(t)
		renewed := make(chan redlatch.Event, 100)
		l := newLocker(t, s.Client(t), redlatch.WithTTL(3*time.Second), redlatch.WithHooks(redlatch.Hooks{
			Renewed: func(e redlatch.Event) { renewed <- e },
		}))
		lock := mustLock(t, l, "k")
		got := waitInLine(t, l, "k")
		setFull(t, direct, true)
		_, err := l.TryLock(t.Context(), "other")
		require.ErrorIs(t, err, redlatch.ErrUnavailable)
		require.Zero(t, direct.Exists(t.Context(), "other").Val())
		for range 4 { // longer than a TTL
			select {
			case e := <-renewed:
				require.True(t, e.Renewal)
			case <-lock.Done():
				require.NoError(t, lock.Err())
			}
		}
		require.NoError(t, lock.Extend(t.Context(), time.Minute))
		require.NoError(t, lock.Err())
		begin := time.Now()
		require.NoError(t, lock.Unlock(t.Context()))
		lock = <-got
		require.NotNil(t, lock)
		require.Less(t, time.Since(begin), time.Second, "handed on")
		require.NoError(t, lock.Extend(t.Context(), time.Minute))
		require.NoError(t, lock.Unlock(t.Context()))
		setFull(t, direct, false)
		onlyFences(t, direct)
	})
}

// TestPermitsSurviveAFullRedis: for permits beside a longer lease.
func TestPermitsSurviveAFullRedis(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	direct := s.Client(t)
	l := newSemaphore(t, s.Client(t), 2)
	long, lock := mustLock(t, l, "k", longTTL), mustLock(t, l, "k")
	setFull(t, direct, true)
	until := lock.Until()
	require.NoError(t, lock.Extend(t.Context(), time.Minute))
	require.True(t, lock.Until().After(until))
	require.Equal(t, 2, holders(t, l, "k"))
	require.NoError(t, long.Unlock(t.Context()))
	require.NoError(t, lock.Unlock(t.Context()))
	require.Zero(t, direct.Exists(t.Context(), "k").Val())
}

// TestLostMessageOnAFullRedisCostsASecond: the message about a hand-over is lost. The waiter finds its
// lock by asking, though Redis is full.
func TestLostMessageOnAFullRedisCostsASecond(t *testing.T) {
	t.Parallel()
	onQueues(t, func(t *testing.T, newLocker newLockerFunc) {
		t.Parallel()
		s := redistest.Start(t)
		direct := s.Client(t)
		holder := mustLock(t, newLocker(t, s.Client(t), longTTL), "k")
		o := s.Options()
		var deaf atomic.Bool
		o.Dialer = deafDialer(&deaf)
		c := redis.NewClient(o)
		t.Cleanup(func() { _ = c.Close() })
		got := waitInLine(t, newLocker(t, c, longTTL), "k")
		eventually(t, "the process listens", func() bool {
			return len(direct.PubSubChannels(t.Context(), "redlatch:*").Val()) == 1
		})
		deaf.Store(true)
		setFull(t, direct, true)
		begin := time.Now()
		require.NoError(t, holder.Unlock(t.Context()))
		eventually(t, "it has its lock", func() bool { return len(got) == 1 })
		require.Less(t, time.Since(begin), 5*time.Second)
		lock := <-got
		require.NoError(t, lock.Unlock(t.Context()))
		deaf.Store(false)
		setFull(t, direct, false)
		onlyFences(t, direct)
	})
}
