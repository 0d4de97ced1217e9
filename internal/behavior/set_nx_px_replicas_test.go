package behavior_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
)

// withReplica returns a server and a replica of it that is in step.
func withReplica(t *testing.T, args ...string) (primary, replica *redistest.Server) {
	t.Helper()
	primary = redistest.StartTCP(t, append([]string{"--repl-diskless-sync-delay", "0"}, args...)...)
	host, port, _ := strings.Cut(primary.Addr(), ":")
	replica = redistest.StartTCP(t, append([]string{"--replicaof", host, port}, args...)...)
	inStep(t, primary)
	return primary, replica
}

// patiently is for grants that must succeed on a busy machine.
var patiently = redlatch.WithReplicas(1, 4*time.Second)

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

// TestGrantIsOnReplicas: WithReplicas grants a lock only once so many replicas have it.
func TestGrantIsOnReplicas(t *testing.T) {
	t.Parallel()
	primary, replica := withReplica(t)
	copied := replica.Client(t)
	l := newLocker(t, primary.Client(t), patiently)
	for range 50 {
		lock := mustLock(t, l, "k")
		require.Equal(t, lock.Token(), copied.Get(t.Context(), "k").Val())
		require.NoError(t, lock.Unlock(t.Context()))
	}
	lock := mustLock(t, l, "k")
	adopted, err := l.Adopt(t.Context(), "k", lock.Token())
	require.NoError(t, err)
	require.NoError(t, adopted.Unlock(t.Context()))
}

// TestTooFewReplicasGrantNothing: the grant is undone, and the error says how many confirmed it.
func TestTooFewReplicasGrantNothing(t *testing.T) {
	t.Parallel()
	primary, replica := withReplica(t)
	client := primary.Client(t)
	l := newLocker(t, client, longTTL, redlatch.WithReplicas(1, 100*time.Millisecond))
	require.NoError(t, mustLock(t, l, "k", patiently).Unlock(t.Context()))
	inStep(t, primary) // so that earlier writes are confirmed: WAIT on another connection does not show it
	replica.Pause()
	defer replica.Resume()
	_, err := l.TryLock(t.Context(), "k")
	require.ErrorIs(t, err, redlatch.ErrNotReplicated)
	require.NotErrorIs(t, err, redlatch.ErrNotAcquired)
	require.EqualError(t, err, `redlatch: try lock "k": not replicated: 0 of 1 replicas confirmed it within 100ms`)
	gone(t, client, "k")
	_, err = l.Lock(t.Context(), "k")
	require.ErrorIs(t, err, redlatch.ErrNotReplicated)
	gone(t, client, "k")
	replica.Resume()
	inStep(t, primary)
	l = newLocker(t, client, redlatch.WithReplicas(2, time.Second))
	_, err = l.TryLock(t.Context(), "k")
	require.ErrorContains(t, err, "1 of 2 replicas")
}

// TestAdoptedLockIsOnReplicas: replicas must confirm Adopt too, even if the token already has a longer lease.
func TestAdoptedLockIsOnReplicas(t *testing.T) {
	t.Parallel()
	primary, replica := withReplica(t)
	o := primary.Options()
	o.PoolSize, o.MaxRetries = 1, -1
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	l := newLocker(t, client, longTTL, redlatch.WithReplicas(1, 100*time.Millisecond))
	lock := mustLock(t, l, "k", redlatch.WithTTL(2*time.Hour), patiently)
	replica.Pause()
	defer replica.Resume()
	_, err := l.Adopt(t.Context(), "k", lock.Token())
	require.ErrorIs(t, err, redlatch.ErrNotReplicated)
	require.NoError(t, lock.Err())
	require.Equal(t, lock.Token(), client.Get(t.Context(), "k").Val(), "the other handle still has the lock")
}

// TestWhatGrantsWrites: since Redis 7.2, WAIT confirms only what its connection wrote. So every grant
// writes, even if the token already has the key for longer. Otherwise replicas that have never seen the
// grant would confirm it.
func TestWhatGrantsWrites(t *testing.T) {
	s := redistest.Start(t)
	client := s.Client(t)
	writes := func() (n int) {
		info, err := client.InfoMap(t.Context(), "persistence").Result()
		require.NoError(t, err)
		n, err = strconv.Atoi(info["Persistence"]["rdb_changes_since_last_save"])
		require.NoError(t, err)
		return n
	}
	l := newLocker(t, client)
	lock := mustLock(t, l, "k", redlatch.WithTTL(2*time.Hour))
	left := client.PTTL(t.Context(), "k").Val()

	require.NoError(t, client.Del(t.Context(), "redlatch:fence").Err(), "the register may be evicted")
	before := writes()
	_, err := l.Adopt(t.Context(), "k", lock.Token())
	require.NoError(t, err)
	require.Greater(t, writes(), before)

	require.Equal(t, lock.Token(), client.Get(t.Context(), "k").Val())
	require.LessOrEqual(t, client.PTTL(t.Context(), "k").Val(), left)
	require.NoError(t, lock.Unlock(t.Context()))
}

// TestRenewalDoesNotAskReplicas: a lock that was granted can be extended and released while replicas
// are away.
func TestRenewalDoesNotAskReplicas(t *testing.T) {
	t.Parallel()
	primary, replica := withReplica(t)
	lock := mustLock(t, newLocker(t, primary.Client(t), patiently), "k")
	replica.Pause()
	defer replica.Resume()
	begin := time.Now()
	require.NoError(t, lock.Extend(t.Context(), time.Minute))
	require.NoError(t, lock.Unlock(t.Context()))
	require.Less(t, time.Since(begin), 4*time.Second)
}

// TestWaiterClaimsOnReplicas: replicas confirm a lock that a release hands on before Lock returns it.
// Until they do, the waiter continues to wait.
func TestWaiterClaimsOnReplicas(t *testing.T) {
	t.Parallel()
	primary, replica := withReplica(t)
	copied := replica.Client(t)
	l := newLocker(t, primary.Client(t), redlatch.WithReplicas(1, 200*time.Millisecond))
	holder := mustLock(t, l, "k", patiently)
	got := make(chan *redlatch.Lock, 1)
	go func() {
		lock, err := l.Lock(t.Context(), "k")
		if err != nil {
			t.Error(err)
		}
		got <- lock
	}()
	eventually(t, "the waiter queues", func() bool {
		st, err := l.Inspect(t.Context(), "k")
		return err == nil && st.Waiters == 1
	})
	replica.Pause()
	require.NoError(t, holder.Unlock(t.Context()))
	eventually(t, "the waiter was handed the lock", func() bool {
		st, err := l.Inspect(t.Context(), "k")
		return err == nil && st.Waiters == 0 && st.Token != holder.Token()
	})
	select {
	case <-got:
		require.Fail(t, "Lock returned, but no replica has confirmed the lock")
	case <-time.After(500 * time.Millisecond):
	}
	replica.Resume()
	lock := <-got
	require.NotNil(t, lock)
	require.Equal(t, lock.Token(), copied.Get(t.Context(), "k").Val())
	require.Greater(t, time.Until(lock.Until()), 5*time.Second, "the lock has its full TTL")
	require.NoError(t, lock.Unlock(t.Context()))
}

func TestWaiterWithoutReplicasGivesUpAndLeavesNothing(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	client := s.Client(t)
	holder := mustLock(t, newLocker(t, client), "k")
	l := newLocker(t, client, longTTL, redlatch.WithReplicas(1, 50*time.Millisecond))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := l.Lock(ctx, "k", redlatch.WithHooks(redlatch.Hooks{
		Waiting: func(redlatch.Event) { _ = holder.Unlock(context.Background()) },
	}))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, redlatch.ErrNotReplicated)
	gone(t, client, "k")
	gone(t, client, "{k}:queue:k")
}

// TestForbiddenWaitIsSaidPlainly: if the user may not send WAIT, nothing is granted. Retrying cannot fix that, so the
// error also ends a wait.
func TestForbiddenWaitIsSaidPlainly(t *testing.T) {
	s := redistest.Start(t)
	admin := s.Client(t)
	client := redis.NewClient(s.User(t, "~*", "&*", "+@all", "-wait"))
	t.Cleanup(func() { _ = client.Close() })
	l := newLocker(t, client, longTTL, redlatch.WithReplicas(1, 50*time.Millisecond))
	_, err := l.TryLock(t.Context(), "k")
	require.ErrorContains(t, err, "WithReplicas needs WAIT, which this Redis refuses: NOPERM")
	require.ErrorContains(t, err, "SECURITY.md has the rights")
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.NotErrorIs(t, err, redlatch.ErrUnavailable)
	require.NotErrorIs(t, err, redlatch.ErrNotReplicated)
	require.NotContains(t, err.Error(), "\n")
	gone(t, admin, "k")

	holder := mustLock(t, newLocker(t, admin), "k")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	_, err = l.Lock(ctx, "k", redlatch.WithHooks(redlatch.Hooks{
		Waiting: func(redlatch.Event) { _ = holder.Unlock(context.Background()) },
	}))
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.NotErrorIs(t, err, context.DeadlineExceeded, "waiting cannot fix it")
	gone(t, admin, "k")
}

// TestReplicasAreRefusedWhereTheyCannotWork: nothing is sent, and the error names the option.
func TestReplicasAreRefusedWhereTheyCannotWork(t *testing.T) {
	m := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: m.Addr(), ReadTimeout: 2 * time.Second})
	t.Cleanup(func() { _ = client.Close() })
	pipelined, err := client.AutoPipeline()
	require.NoError(t, err)
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": m.Addr()}})
	t.Cleanup(func() { _ = ring.Close() })
	setNXPX := func(c redis.UniversalClient, opt redlatch.Option) error {
		_, err := redlatch.NewSetNXPX(c, opt)
		return err
	}
	one := redlatch.WithReplicas(1, time.Second)
	for name, refused := range map[string]error{
		"none":          setNXPX(client, redlatch.WithReplicas(0, time.Second)),
		"negative":      setNXPX(client, redlatch.WithReplicas(-1, time.Second)),
		"no time":       setNXPX(client, redlatch.WithReplicas(1, 0)),
		"too little":    setNXPX(client, redlatch.WithReplicas(1, time.Microsecond)),
		"read timeout":  setNXPX(client, redlatch.WithReplicas(1, 2*time.Second)),
		"autopipeline":  setNXPX(pipelined, one),
		"ring":          setNXPX(ring, one),
		"legacy":        func() error { _, err := redlatch.NewLegacySetNX(client, one); return err }(),
		"redlock":       func() error { _, err := redlatch.NewRedlock([]redis.UniversalClient{client}, one); return err }(),
		"a short lease": func() error { _, err := redlatch.NewSetNXPX(client, one, redlatch.WithTTL(time.Second)); return err }(),
	} {
		require.ErrorIs(t, refused, redlatch.ErrInvalidOption, name)
		require.ErrorContains(t, refused, "WithReplicas", name)
	}
	require.NoError(t, setNXPX(client, redlatch.WithReplicas(1, 1500*time.Millisecond)))
	require.Zero(t, m.TotalConnectionCount())

	l := newLocker(t, client)
	_, err = l.TryLock(t.Context(), "k", redlatch.WithReplicas(1, 3*time.Second))
	require.ErrorIs(t, err, redlatch.ErrInvalidOption)
	_, err = l.TryLock(t.Context(), "k", redlatch.WithReplicas(1, 10*time.Millisecond))
	require.ErrorIs(t, err, redlatch.ErrNotReplicated, "miniredis has no replicas")
	require.False(t, m.Exists("k"))
}

// TestUnconfirmedWaiterKeepsNobodyOut: a lock that too few replicas confirmed is released, also by
// a waiter, which tries again later.
func TestUnconfirmedWaiterKeepsNobodyOut(t *testing.T) {
	t.Parallel()
	for name, waited := range map[string]bool{"at first": false, "after a wait": true} { // with a subscription
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := miniredis.RunT(t) // it has no replicas
			client := redis.NewClient(&redis.Options{Addr: m.Addr()})
			t.Cleanup(func() { _ = client.Close() })
			l := newLocker(t, client, redlatch.WithPollInterval(50*time.Millisecond, 50*time.Millisecond))
			wait := func(ctx context.Context, opts ...redlatch.Option) <-chan error {
				holder := mustLock(t, l, "k")
				ended := make(chan error, 1)
				go func() {
					lock, err := l.Lock(ctx, "k", opts...)
					if err == nil {
						err = lock.Unlock(ctx)
					}
					ended <- err
				}()
				eventually(t, "the waiter queues", func() bool { return m.Exists("{k}:queue:k") })
				require.NoError(t, holder.Unlock(t.Context()))
				return ended
			}
			if waited {
				require.NoError(t, <-wait(t.Context()))
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := wait(ctx, redlatch.WithReplicas(1, 10*time.Millisecond))
			for range 5 {
				eventually(t, "others get the lock", func() bool {
					lock, err := l.TryLock(t.Context(), "k")
					if err != nil {
						return false
					}
					require.NoError(t, lock.Unlock(t.Context()))
					return true
				})
			}
			for range 2 { // so that the last attempt but one has met no other owner
				eventually(t, "the waiter tries again", func() bool { return m.Exists("k") })
				eventually(t, "the waiter releases the lock", func() bool { return !m.Exists("k") })
			}
			cancel()
			err := <-ended
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorIs(t, err, redlatch.ErrNotReplicated)
			require.ErrorIs(t, err, redlatch.ErrUnavailable)
			eventually(t, "nothing is left", func() bool { return !m.Exists("k") && !m.Exists("{k}:queue:k") })
		})
	}
}

// TestReplicasInACluster: WAIT goes to the master of the key, on the connection of the grant.
func TestReplicasInACluster(t *testing.T) {
	t.Parallel()
	s := redistest.StartTCP(t, "--cluster-enabled", "yes")
	admin := s.Client(t)
	require.NoError(t, admin.ClusterAddSlotsRange(t.Context(), 0, 16383).Err())
	replica := redistest.StartTCP(t, "--cluster-enabled", "yes")
	copied := replica.Client(t)
	host, port, _ := strings.Cut(s.Addr(), ":")
	require.NoError(t, copied.ClusterMeet(t.Context(), host, port).Err())
	id := admin.ClusterMyID(t.Context()).Val()
	eventually(t, "the second node is a replica", func() bool { return copied.ClusterReplicate(t.Context(), id).Err() == nil })
	eventually(t, "the cluster is up", func() bool {
		return strings.Contains(admin.ClusterInfo(t.Context()).Val(), "cluster_state:ok")
	})
	inStep(t, s)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{s.Addr()}})
	t.Cleanup(func() { _ = client.Close() })
	l := newLocker(t, client, patiently)
	require.NoError(t, copied.ReadOnly(t.Context()).Err())
	for i := range 20 {
		lock := mustLock(t, l, "k"+strconv.Itoa(i))
		require.NoError(t, lock.Unlock(t.Context()))
	}
	replica.Pause()
	defer replica.Resume()
	_, err := l.TryLock(t.Context(), "k", redlatch.WithReplicas(1, 50*time.Millisecond))
	require.ErrorIs(t, err, redlatch.ErrNotReplicated)
}
