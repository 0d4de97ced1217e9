package behavior_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// patiently is for grants that must succeed on a busy machine, and inVain for those whose replica is paused.
var (
	patiently = redlatch.WithReplicas(1, 4*time.Second)
	inVain    = redlatch.WithReplicas(1, 100*time.Millisecond)
)

// inStep waits until a replica confirms writes.
func inStep(t *testing.T, primary *redistest.Server) {
	t.Helper()
	conn := primary.Client(t).Conn()
	defer conn.Close()
	eventually(t, "a replica confirms", func() bool {
		require.NoError(t, conn.Set(t.Context(), "warm", "1", time.Second).Err())
		return conn.Wait(t.Context(), 1, 100*time.Millisecond).Val() == 1
	})
}

// TestGrantIsOnReplicas: WithReplicas grants a lock only once so many replicas have it. Otherwise the grant is undone, and the error
// says how many confirmed it. The same holds for Adopt, even if the token already has a longer lease, and for a lock that a release
// hands on: the waiter goes on waiting. Extend and Unlock do not ask replicas.
func TestGrantIsOnReplicas(t *testing.T) {
	t.Parallel()
	primary := redistest.StartTCP(t, "--repl-diskless-sync-delay", "0")
	host, port, _ := strings.Cut(primary.Addr(), ":")
	replica := redistest.StartTCP(t, "--replicaof", host, port)
	inStep(t, primary)
	client, copied := primary.Client(t), replica.Client(t)
	l := newLocker(t, client, longTTL, inVain)
	for range 20 {
		lock := mustLock(t, l, "k", patiently)
		require.Equal(t, lock.Token(), copied.Get(t.Context(), "k").Val())
		adopted, err := l.Adopt(t.Context(), "k", lock.Token(), patiently)
		require.NoError(t, err)
		require.NoError(t, adopted.Unlock(t.Context()))
	}
	_, err := l.TryLock(t.Context(), "k", redlatch.WithReplicas(2, time.Second))
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
	require.Equal(t, holder.Token(), client.Get(t.Context(), "k").Val(), "the other handle still has the lock")
	begin := time.Now()
	require.NoError(t, holder.Extend(t.Context(), 3*time.Hour))
	require.NoError(t, holder.Unlock(t.Context()))
	require.Less(t, time.Since(begin), 4*time.Second)
	<-time.After(300 * time.Millisecond)
	require.Empty(t, got, "Lock returned, but no replica has confirmed the lock")
	replica.Resume()
	lock := await(t, got, "the replica confirms")
	require.Equal(t, lock.Token(), copied.Get(t.Context(), "k").Val())
	require.Greater(t, time.Until(lock.Until()), 59*time.Minute, "the lock has its full TTL")
	require.NoError(t, lock.Unlock(t.Context()))
}

// TestUnconfirmedWaiterKeepsNobodyOut: a lock that too few replicas confirmed is released, also by a waiter, which tries again later.
// When ctx ends, the error says so, and nothing is left.
func TestUnconfirmedWaiterKeepsNobodyOut(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) { // miniredis has no replicas
		l := newLocker(t, s.Client(t))
		holder := mustLock(t, l, "k")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		ended := make(chan error, 1)
		go func() { // ends with ctx
			_, err := newLocker(t, s.Client(t)).Lock(ctx, "k", redlatch.WithReplicas(1, 10*time.Millisecond))
			ended <- err
		}()
		time.Sleep(time.Second)
		require.NoError(t, holder.Unlock(t.Context()))
		for range 5 {
			brief, end := context.WithTimeout(t.Context(), 10*time.Second)
			lock, err := l.Lock(brief, "k")
			end()
			require.NoError(t, err, "others get the lock")
			require.NoError(t, lock.Unlock(t.Context()))
			time.Sleep(3 * time.Second)
		}
		err := <-ended
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, redlatch.ErrNotReplicated)
		require.ErrorIs(t, err, redlatch.ErrUnavailable)
		onlyFences(t, s.Direct)
	})
}

// TestForbiddenWaitIsSaidPlainly: if the user may not send WAIT, nothing is granted. Retrying cannot fix that, so the error also ends
// a wait.
func TestForbiddenWaitIsSaidPlainly(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	admin := s.Client(t)
	client := redis.NewClient(s.User(t, "~*", "&*", "+@all", "-wait"))
	t.Cleanup(func() { _ = client.Close() })
	l := newLocker(t, client, longTTL, redlatch.WithReplicas(1, 50*time.Millisecond))
	_, try := l.TryLock(t.Context(), "k")
	gone(t, admin, "k")
	holder := mustLock(t, newLocker(t, admin), "k")
	_, wait := l.Lock(bounded(t), "k", redlatch.WithHooks(redlatch.Hooks{
		Waiting: func(redlatch.Event) { _ = holder.Unlock(context.Background()) },
	}))
	gone(t, admin, "k")
	for _, err := range []error{try, wait} {
		requireOnly(t, err, errors.ErrUnsupported)
		require.ErrorContains(t, err, "WithReplicas needs WAIT, which this Redis refuses: NOPERM")
		require.ErrorContains(t, err, "SECURITY.md has the rights")
		require.NotErrorIs(t, err, redlatch.ErrNotReplicated)
	}
}

// TestReplicasAreRefusedWhereTheyCannotWork: nothing is sent, and the error names the option.
func TestReplicasAreRefusedWhereTheyCannotWork(t *testing.T) {
	t.Parallel()
	m := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: m.Addr(), ReadTimeout: 2 * time.Second})
	t.Cleanup(func() { _ = client.Close() })
	pipelined, err := client.AutoPipeline()
	require.NoError(t, err)
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": m.Addr()}})
	t.Cleanup(func() { _ = ring.Close() })
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{m.Addr()}, ReadTimeout: 2 * time.Second})
	t.Cleanup(func() { _ = cluster.Close() })
	one := redlatch.WithReplicas(1, time.Second)
	for name, c := range map[string]struct {
		make   maker
		client redis.UniversalClient
		opts   []redlatch.Option
	}{
		"none":          {redlatch.NewSetNXPX, client, []redlatch.Option{redlatch.WithReplicas(0, time.Second)}},
		"negative":      {redlatch.NewSetNXPX, client, []redlatch.Option{redlatch.WithReplicas(-1, time.Second)}},
		"no time":       {redlatch.NewSetNXPX, client, []redlatch.Option{redlatch.WithReplicas(1, 0)}},
		"too little":    {redlatch.NewSetNXPX, client, []redlatch.Option{redlatch.WithReplicas(1, time.Microsecond)}},
		"read timeout":  {redlatch.NewSetNXPX, client, []redlatch.Option{redlatch.WithReplicas(1, 2*time.Second)}},
		"autopipeline":  {redlatch.NewSetNXPX, pipelined, []redlatch.Option{one}},
		"cluster":       {redlatch.NewSetNXPX, cluster, []redlatch.Option{redlatch.WithReplicas(1, 2*time.Second)}},
		"ring":          {redlatch.NewSetNXPX, ring, []redlatch.Option{one}},
		"legacy":        {redlatch.NewLegacySetNX, client, []redlatch.Option{one}},
		"redlock":       {everyStrategy["Redlock"], client, []redlatch.Option{one}},
		"a short lease": {redlatch.NewSetNXPX, client, []redlatch.Option{one, redlatch.WithTTL(time.Second)}},
	} {
		_, err := c.make(c.client, c.opts...)
		requireOnly(t, err, redlatch.ErrInvalidOption, name)
		require.ErrorContains(t, err, "WithReplicas", name)
	}
	l := newLocker(t, client)
	_, err = l.TryLock(t.Context(), "k", redlatch.WithReplicas(1, 3*time.Second))
	requireOnly(t, err, redlatch.ErrInvalidOption)
	require.Zero(t, m.TotalConnectionCount())
}
