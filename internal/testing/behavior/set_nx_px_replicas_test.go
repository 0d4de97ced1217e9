package behavior_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/locktest"
	"github.com/redlatch/redlatch/internal/testing/redistest"
)

// patiently is for grants that must succeed on a busy machine, and inVain for those whose replica
// is paused.
var (
	patiently = redlatch.WithReplicas(1, 4*time.Second)
	inVain    = redlatch.WithReplicas(1, 100*time.Millisecond)
)

// TestGrantIsOnReplicas: WithReplicas grants a lock only once so many replicas have it. Otherwise
// the grant is undone, and the error says how many confirmed it. The same holds for Adopt, even if
// the token already has a longer lease, and for a lock that a release hands on: the waiter goes on
// waiting. Extend and Unlock do not ask replicas.
func TestGrantIsOnReplicas(t *testing.T) {
	t.Parallel()
	primary := redistest.StartTCP(t)
	replica := redistest.StartReplica(t, primary)
	client, copied := primary.Client(t), replica.Client(t)
	l := newLocker(t, client, longTTL, inVain)
	for range 5 {
		lock := mustLock(t, l, "k", patiently)
		require.Equal(t, string(lock.Token()), copied.Get(t.Context(), "k").Val())
		adopted, err := l.Adopt(t.Context(), "k", lock.Token(), patiently)
		require.NoError(t, err)
		require.NoError(t, adopted.Unlock(t.Context()))
	}
	_, err := l.TryLock(t.Context(), "k", redlatch.WithReplicas(2, 3*time.Second))
	require.ErrorContains(t, err, "1 of 2 replicas")

	holder := mustLock(t, l, "k", redlatch.WithTTL(2*time.Hour), patiently)
	waiter := newLocker(t, primary.Client(t), longTTL, inVain)
	got := waitInLine(t, waiter, "k")
	replica.Pause()
	defer replica.Resume()
	_, err = l.TryLock(t.Context(), "other")
	require.EqualError(t, err, `redlatch: try lock "other": not replicated: 0 of 1 replicas confirmed it within 100ms`)
	require.ErrorIs(t, err, redlatch.ErrNotReplicated)
	require.NotErrorIs(t, err, redlatch.ErrNotAcquired)
	_, err = l.Lock(t.Context(), "other")
	require.ErrorIs(t, err, redlatch.ErrNotReplicated)
	gone(t, client, "other")
	_, err = l.Adopt(t.Context(), "k", holder.Token())
	require.ErrorIs(t, err, redlatch.ErrNotReplicated)
	require.NoError(t, holder.Err())
	require.Equal(t, string(holder.Token()), client.Get(t.Context(), "k").Val(), "the other handle still has the lock")
	require.NoError(t, holder.Extend(t.Context(), 3*time.Hour)) // WAIT would fail it
	require.NoError(t, holder.Unlock(t.Context()))
	for range 3 { // the waiter releases what no replica has confirmed, and tries again later
		require.NoError(t, locktest.LockSoon(t, newLocker(t, client), "k").Unlock(t.Context()))
		<-time.After(100 * time.Millisecond)
	}
	require.Empty(t, got, "Lock returned, but no replica has confirmed the lock")
	replica.Resume()
	lock := await(t, got, "the replica confirms")
	require.Equal(t, string(lock.Token()), copied.Get(t.Context(), "k").Val())
	require.Greater(t, time.Until(lock.Until()), 59*time.Minute, "the lock has its full TTL")
	require.NoError(t, lock.Unlock(t.Context()))
}

// TestEndOfAConfirmedCallSaysWhyRedisIsSilent: as that of any other call does.
func TestEndOfAConfirmedCallSaysWhyRedisIsSilent(t *testing.T) {
	onEvery(t, only("SetNXPX", "Semaphore", "Write"), func(t *testing.T, w *world) {
		l, link := w.linked(t, inVain)
		link.refuse()
		for _, acquire := range []func(context.Context, string, ...redlatch.Option) (*redlatch.Lock, error){l.TryLock, l.Lock} {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond) // less than the op timeout
			_, err := acquire(ctx, "k")
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorContains(t, err, "connection refused")
		}
	})
}

// TestForbiddenWaitIsSaidPlainly: if the user may not send WAIT, nothing is granted. Retrying
// cannot fix that, so the error also ends a wait.
func TestForbiddenWaitIsSaidPlainly(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	admin := s.Client(t)
	client := locktest.Closing(t, redis.NewClient(s.User(t, "~*", "&*", "+@all", "-wait")))
	holder := mustLock(t, newLocker(t, admin), "k")
	_, err := newLocker(t, client, longTTL, inVain).Lock(bounded(t), "k", redlatch.WithHooks(redlatch.Hooks{
		Waiting: func(context.Context, redlatch.Event) { _ = holder.Unlock(context.Background()) },
	}))
	requireOnly(t, err, errors.ErrUnsupported)
	require.ErrorContains(t, err, "WithReplicas needs WAIT, which this Redis refuses: NOPERM")
	require.NotErrorIs(t, err, redlatch.ErrNotReplicated)
	gone(t, admin, "k")
}

// TestReplicasAreRefusedWhereTheyCannotWork: nothing is sent, and the error names the option.
func TestReplicasAreRefusedWhereTheyCannotWork(t *testing.T) {
	t.Parallel()
	m := miniredis.RunT(t)
	client := locktest.Closing(t, redis.NewClient(&redis.Options{Addr: m.Addr(), ReadTimeout: 2 * time.Second}))
	pipelined, err := client.AutoPipeline()
	require.NoError(t, err)
	ring := locktest.Closing(t, redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": m.Addr()}}))
	cluster := locktest.Closing(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{m.Addr()}, ReadTimeout: 2 * time.Second}))
	one, lock := redlatch.WithReplicas(1, time.Second), everyStrategy["SetNXPX"]
	for name, c := range map[string]struct {
		make   maker
		client redis.UniversalClient
		opt    redlatch.Option
	}{
		"none":         {lock, client, redlatch.WithReplicas(0, time.Second)},
		"no time":      {lock, client, redlatch.WithReplicas(1, 0)},
		"too little":   {lock, client, redlatch.WithReplicas(1, time.Microsecond)},
		"read timeout": {lock, client, redlatch.WithReplicas(1, 2*time.Second)},
		"autopipeline": {lock, pipelined, one},
		"cluster":      {lock, cluster, redlatch.WithReplicas(1, 2*time.Second)},
		"ring":         {lock, ring, one},
		"legacy":       {redlatch.NewLegacySetNX, client, one},
		"redlock":      {everyStrategy["Redlock"], client, one},
	} {
		_, err := c.make(c.client, c.opt)
		requireOnly(t, err, redlatch.ErrInvalid, name)
		require.ErrorContains(t, err, "WithReplicas", name)
	}
	_, err = redlatch.NewSetNXPX(client, one, redlatch.WithTTL(time.Second))
	require.ErrorContains(t, err, "WithReplicas", "a short lease")
	_, err = newLocker(t, client).TryLock(t.Context(), "k", redlatch.WithReplicas(1, 3*time.Second))
	requireOnly(t, err, redlatch.ErrInvalid)
	require.Zero(t, m.TotalConnectionCount())
}
