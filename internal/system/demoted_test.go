package system_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/faultproxy"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// moved is a primary and its replica. An address leads to the primary, and later to the replica. Each process reaches
// the address through a proxy of its own.
type moved struct {
	old, promoted *redistest.Server
	proxies       []*faultproxy.Proxy
}

func startMoved(t *testing.T) *moved {
	t.Helper()
	old := redistest.StartTCP(t)
	return &moved{old: old, promoted: redistest.StartReplica(t, old)}
}

// process returns the client of another process, and the proxy that it uses.
func (m *moved) process(t *testing.T) (*redis.Client, *faultproxy.Proxy) {
	t.Helper()
	p := faultproxy.New(t, m.old.Network(), m.old.Addr())
	m.proxies = append(m.proxies, p)
	return p.Client(t), p
}

// promote makes the replica a primary that has all that was written so far.
func (m *moved) promote(t *testing.T) {
	t.Helper()
	(&replicated{primary: m.old, replica: m.promoted}).catchesUp(t)
	require.NoError(t, m.promoted.Client(t).ReplicaOf(t.Context(), "no", "one").Err())
}

// demote makes the old primary a replica of the server at addr. From then on the address leads to the promoted one. No
// connection is cut.
func (m *moved) demote(t *testing.T, addr string) {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	require.NoError(t, m.old.Client(t).ReplicaOf(t.Context(), host, port).Err())
	for _, p := range m.proxies {
		p.PointAt(m.promoted.Network(), m.promoted.Addr())
	}
}

// unreachable is an address that nobody answers, so a replica of it keeps its old data.
const unreachable = "127.0.0.1:1"

// An ownership has the locks of one key that were granted so far, and counts those that are trusted at once.
type ownership struct {
	mu    sync.Mutex // guards the fields below
	locks []*redlatch.Lock
	most  int
}

func (o *ownership) add(lock *redlatch.Lock) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.locks = append(o.locks, lock)
}

func (o *ownership) count() {
	o.mu.Lock()
	defer o.mu.Unlock()
	trusted := 0
	for _, lock := range o.locks {
		if lock.Err() == nil {
			trusted++
		}
	}
	o.most = max(o.most, trusted)
}

// watch counts every millisecond until ctx ends.
func (o *ownership) watch(ctx context.Context) {
	each := time.NewTicker(time.Millisecond)
	defer each.Stop()
	for ctx.Err() == nil {
		o.count()
		<-each.C
	}
}

// TestFailOverMakesNoSecondOwner: after a failover, the subscription of a waiter stays on the demoted primary, which
// gets all messages from the new one. PUBLISH on the new primary does not count that waiter. So the lock goes to
// somebody else, and only to them. The waiter is served after that.
func TestFailOverMakesNoSecondOwner(t *testing.T) {
	t.Parallel()
	semaphore := func(limit int) func(*testing.T, redis.UniversalClient, ...redlatch.Option) redlatch.Locker {
		return func(t *testing.T, client redis.UniversalClient, opts ...redlatch.Option) redlatch.Locker {
			return locktest.Semaphore(t, client, limit, opts...)
		}
	}
	for _, c := range []struct {
		name  string
		limit int
		open  func(*testing.T, redis.UniversalClient, ...redlatch.Option) redlatch.Locker
		opts  []redlatch.Option
	}{
		{"SetNXPX", 1, locktest.SetNXPX, nil},
		{"SetNXPX without renewal", 1, locktest.SetNXPX, []redlatch.Option{redlatch.WithoutRenewal()}},
		{"Semaphore of 1", 1, semaphore(1), nil},
		{"Semaphore of 2", 2, semaphore(2), nil},
		{"Semaphore of 2 without renewal", 2, semaphore(2), []redlatch.Option{redlatch.WithoutRenewal()}},
	} {
		opts := append([]redlatch.Option{redlatch.WithTTL(9 * time.Second)}, c.opts...)
		for _, queues := range []bool{true, false} {
			rival := map[bool]string{true: "another waiter", false: "TryLock"}[queues]
			t.Run(c.name+" and "+rival, func(t *testing.T) {
				t.Parallel()
				m := startMoved(t)
				locker := func() (redlatch.Locker, *faultproxy.Proxy) {
					client, p := m.process(t)
					return c.open(t, client, opts...), p
				}
				waiter, waiterRoad := locker()
				holder, holderRoad := locker()
				other, otherRoad := locker()
				makesNoSecondOwner(t, m, c.limit, holder, waiter, other, queues, func() {
					waiterRoad.CutUnsubscribed()
					holderRoad.Cut()
					otherRoad.Cut()
				})
			})
		}
	}
}

// makesNoSecondOwner has a holder hand a lock on after a failover. The waiter is the first of the queue. The other
// process is the second, or does not queue.
func makesNoSecondOwner(t *testing.T, m *moved, limit int, holder, waiter, other redlatch.Locker, queues bool, cut func()) {
	var owners ownership
	var held *redlatch.Lock
	for range limit {
		held = locktest.MustLock(t, holder, "k")
		owners.add(held)
	}
	got := locktest.WaitInLine(t, waiter, "k")
	var otherGot <-chan *redlatch.Lock
	subscribers := 1
	if queues {
		otherGot = locktest.WaitInLine(t, other, "k")
		subscribers = 2
	}
	channels := func(s *redistest.Server) int {
		return len(s.Client(t).PubSubChannels(t.Context(), "redlatch:*").Val())
	}
	locktest.Eventually(t, "all who queue have subscribed", func() bool { return channels(m.old) == subscribers })

	m.promote(t)
	m.demote(t, m.promoted.Addr())
	locktest.Eventually(t, "the demoted server replicates", func() bool {
		return m.old.Client(t).InfoMap(t.Context(), "replication").Item("Replication", "master_link_status") == "up"
	})
	cut()
	locktest.Eventually(t, "the others have subscribed again", func() bool { return channels(m.promoted) == subscribers-1 })
	require.Equal(t, 1, channels(m.old), "the waiter still listens there")

	ctx, cancel := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() { owners.watch(ctx) })
	defer watching.Wait()
	defer cancel()

	released := time.Now()
	require.NoError(t, held.Unlock(t.Context()))
	if !queues {
		otherGot = eager(t, other, "k")
	}
	var unlocked []<-chan error
	for range 2 {
		var lock *redlatch.Lock
		select {
		case lock = <-got:
			got = nil
			require.Less(t, time.Since(released), 5*time.Second, "the waiter is served late")
		case lock = <-otherGot:
			otherGot = nil
		case <-time.After(15 * time.Second):
		}
		require.NotNil(t, lock, "not served: the waiter: %v, the other: %v", got != nil, otherGot != nil)
		owners.add(lock)
		unlocked = append(unlocked, keepFor(t, lock, time.Second))
	}
	err := errors.Join(<-unlocked[0], <-unlocked[1])
	cancel()
	watching.Wait()
	require.LessOrEqual(t, owners.most, limit, "too many owners at once")
	require.NoError(t, err)
	fences := map[uint64]bool{}
	for _, lock := range owners.locks {
		require.False(t, fences[lock.Fence()], "two locks have fence %d", lock.Fence())
		fences[lock.Fence()] = true
	}
}

// eager calls TryLock until it succeeds.
func eager(t *testing.T, l redlatch.Locker, key string) <-chan *redlatch.Lock {
	got := make(chan *redlatch.Lock, 1)
	// The caller owns this goroutine. It ends with the lock or with the test.
	go func() {
		defer close(got)
		for t.Context().Err() == nil {
			if lock, err := l.TryLock(t.Context(), key); err == nil {
				got <- lock
				return
			}
		}
	}()
	return got
}

// keepFor unlocks a lock after d, and sends the error of that.
func keepFor(t *testing.T, lock *redlatch.Lock, d time.Duration) <-chan error {
	unlocked := make(chan error, 1)
	time.AfterFunc(d, func() { unlocked <- lock.Unlock(t.Context()) })
	return unlocked
}

// renewing are strategies whose locks are renewed, on one server.
var renewing = map[string]func(*testing.T, redis.UniversalClient, ...redlatch.Option) redlatch.Locker{
	"SetNXPX":   locktest.SetNXPX,
	"Semaphore": locktest.Mutex,
	"one node of Redlock": func(t *testing.T, client redis.UniversalClient, opts ...redlatch.Option) redlatch.Locker {
		l, err := redlatch.NewRedlock([]redis.UniversalClient{client}, append(opts, locktest.Patience)...)
		require.NoError(t, err)
		return l
	},
	"LegacySetNX": func(t *testing.T, client redis.UniversalClient, opts ...redlatch.Option) redlatch.Locker {
		l, err := redlatch.NewLegacySetNX(client, append(opts, locktest.Patience)...)
		require.NoError(t, err)
		return l
	},
}

// TestDemotedServerRenewsNothing: a replica was promoted before Extend made a lease very long, so the key ended there
// and has another owner. Once the old primary is a replica with old data, a renewal that reaches it does not succeed. The
// holder notices the loss within its TTL.
func TestDemotedServerRenewsNothing(t *testing.T) {
	t.Parallel()
	const ttl = 3 * time.Second
	for name, open := range renewing {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := startMoved(t)
			var mu sync.Mutex // guards sent
			var sent []time.Time
			client, _ := m.process(t)
			l := open(t, client, redlatch.WithTTL(ttl), redlatch.WithHooks(redlatch.Hooks{Renewed: func(e redlatch.Event) {
				mu.Lock()
				defer mu.Unlock()
				sent = append(sent, time.Now().Add(-e.Took))
			}}))
			lock := locktest.MustLock(t, l, "k")
			m.promote(t)
			require.NoError(t, lock.Extend(t.Context(), time.Hour))
			second, err := open(t, m.promoted.Client(t)).Lock(t.Context(), "k")
			require.NoError(t, err)
			require.NoError(t, lock.Err(), "two primaries, two owners")

			m.demote(t, unreachable)
			demoted := time.Now()
			select {
			case <-lock.Done():
				t.Logf("lost after %v", time.Since(demoted))
			case <-time.After(10 * time.Second):
			}
			mu.Lock()
			defer mu.Unlock()
			for _, at := range sent {
				require.False(t, at.After(demoted), "a renewal succeeded that was sent %v after the server was demoted", at.Sub(demoted))
			}
			require.ErrorIs(t, lock.Err(), redlatch.ErrLost)
			require.Less(t, time.Since(demoted), ttl+time.Second)
			require.NoError(t, second.Err())
			require.NoError(t, second.Unlock(t.Context()))
		})
	}
}

// TestDemotedServerLosesNothing: a demoted primary with old data says of locks that were taken after the move that they do
// not exist. Commands still reach it on connections from before. Nobody believes it: no lock is reported lost, and
// Unlock releases the lock on the new primary.
func TestDemotedServerLosesNothing(t *testing.T) {
	t.Parallel()
	for name, open := range renewing {
		for _, renewals := range []int{0, 2} {
			t.Run(fmt.Sprintf("%s, unlocked after %d renewals", name, renewals), func(t *testing.T) {
				t.Parallel()
				losesNothing(t, open, renewals)
			})
		}
	}
}

func losesNothing(t *testing.T, open func(*testing.T, redis.UniversalClient, ...redlatch.Option) redlatch.Locker, renewals int) {
	const locks = 98
	m := startMoved(t)
	client, _ := m.process(t)
	warm(t, client)
	var mu sync.Mutex // guards renewed and lost
	renewed, lost := map[string]int{}, []error{}
	l := open(t, client, redlatch.WithTTL(3*time.Second), redlatch.WithHooks(redlatch.Hooks{
		Renewed: func(e redlatch.Event) {
			mu.Lock()
			defer mu.Unlock()
			renewed[e.Key]++
		},
		Lost: func(e redlatch.Event) {
			mu.Lock()
			defer mu.Unlock()
			lost = append(lost, e.Err)
		},
	}))
	m.promote(t)
	m.demote(t, unreachable)

	var held [locks]*redlatch.Lock
	for i := range locks { // one at a time, so that the connections for pipelines stay as they were
		held[i] = lockAfterTrouble(t, l, fmt.Sprintf("k%d", i))
	}
	ended := 0
	locktest.Eventually(t, "every lock is renewed, or reported lost", func() bool {
		mu.Lock()
		defer mu.Unlock()
		done := 0
		ended = 0
		for _, lock := range held {
			switch {
			case lock.Err() != nil:
				ended++
			case renewed[lock.Key()] >= renewals:
				done++
			}
		}
		return ended+done == locks
	})
	mu.Lock()
	reported := slices.Clone(lost)
	mu.Unlock()
	require.Zero(t, ended, "of %d locks, so many have ended: %v", locks, reported)
	require.Empty(t, reported)
	var unlocking sync.WaitGroup
	errs := make(chan error, locks)
	for _, lock := range held {
		unlocking.Go(func() { errs <- lock.Unlock(t.Context()) })
	}
	unlocking.Wait()
	failed := 0
	var last error
	for range locks {
		if err := <-errs; err != nil {
			failed, last = failed+1, err
		}
	}
	left := 0
	for _, key := range m.promoted.Client(t).Keys(t.Context(), "*").Val() {
		if !locktest.IsFence(key) && key != "written" {
			left++
		}
	}
	require.NoError(t, last, "Unlock of %d of %d locks failed, and %d keys are left", failed, locks, left)
	require.Zero(t, left, "keys were left")
}

// warm opens many connections of a client, for single commands and for pipelines.
func warm(t *testing.T, client *redis.Client) {
	t.Helper()
	const connections = 20 // the size of the pool, on a machine with two processors
	var wg sync.WaitGroup
	for range connections {
		wg.Go(func() { _ = client.BLPop(t.Context(), 500*time.Millisecond, "nothing") })
		wg.Go(func() {
			_, _ = client.Pipelined(t.Context(), func(pipe redis.Pipeliner) error {
				return pipe.BLPop(t.Context(), 500*time.Millisecond, "nothing").Err()
			})
		})
	}
	wg.Wait()
}
