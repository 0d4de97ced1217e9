package redlatch_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/faultproxy"
	"github.com/redlatch/redlatch/internal/redistest"
)

// cluster is five independent real nodes, each behind a fault proxy.
type cluster struct {
	servers []*redistest.Server
	proxies []*faultproxy.Proxy
	direct  []*redis.Client
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	n := &cluster{}
	for range 5 {
		s := redistest.Start(t)
		n.servers = append(n.servers, s)
		n.proxies = append(n.proxies, faultproxy.New(t, s.Network(), s.Addr()))
		n.direct = append(n.direct, s.Client(t))
	}
	return n
}

// locker returns a Redlock with clients of its own, warmed up, behind the proxies or around them.
func (n *cluster) locker(t *testing.T, proxied bool, opts ...redlatch.Option) redlatch.Locker {
	t.Helper()
	var clients []redis.UniversalClient
	for i := range n.servers {
		c := n.direct[i]
		if proxied {
			c = n.proxies[i].Client(t)
		}
		clients = append(clients, c)
	}
	l, err := redlatch.NewRedlock(clients, append([]redlatch.Option{longTTL}, opts...)...)
	require.NoError(t, err)
	if proxied {
		lock := mustLock(t, l, "warm")
		require.NoError(t, lock.Extend(t.Context(), time.Hour))
		require.NoError(t, lock.Unlock(t.Context()))
		n.settled(t, "warm")
	}
	return l
}

// have returns how many nodes have key.
func (n *cluster) have(t *testing.T, key string) int {
	t.Helper()
	nodes := 0
	for _, c := range n.direct {
		nodes += int(c.Exists(context.WithoutCancel(t.Context()), key).Val())
	}
	return nodes
}

// settled waits until no node has key: a release may still be under way on a minority.
func (n *cluster) settled(t *testing.T, key string) {
	t.Helper()
	eventually(t, key+" is gone from all nodes", func() bool { return n.have(t, key) == 0 })
}

// noLocks waits until no node has any key but fence counters.
func (n *cluster) noLocks(t *testing.T) {
	t.Helper()
	for i, c := range n.direct {
		eventually(t, fmt.Sprint("no lock is left on node ", i), func() bool {
			return !slices.ContainsFunc(c.Keys(t.Context(), "*").Val(), func(key string) bool {
				return !strings.Contains(key, "}:fence:")
			})
		})
	}
}

// TestQuorumOfFreeNodesIsGranted is step 3 of the algorithm, for all 32 patterns of nodes that are
// held by another.
func TestQuorumOfFreeNodesIsGranted(t *testing.T) {
	n := newCluster(t)
	l := n.locker(t, false)
	for pattern := range 32 {
		key := fmt.Sprintf("k%05b", pattern)
		free := 5
		for i := range 5 {
			if pattern>>i&1 == 1 {
				free--
				require.NoError(t, n.direct[i].Set(t.Context(), key, "another", time.Hour).Err())
			}
		}
		lock, err := l.TryLock(t.Context(), key)
		if free >= 3 {
			require.NoError(t, err, key)
			require.NoError(t, lock.Unlock(t.Context()))
		} else {
			require.ErrorIs(t, err, redlatch.ErrNotAcquired, key)
			require.NotErrorIs(t, err, redlatch.ErrNoQuorum, key)
			var q *redlatch.QuorumError
			require.ErrorAs(t, err, &q)
			require.Equal(t, 3, q.Need)
			require.Len(t, q.Nodes, 5)
			require.NotContains(t, err.Error(), "\n")
		}
		eventually(t, "only the other's keys are left", func() bool { return n.have(t, key) == 5-free })
	}
}

// TestEvenNumberOfNodesNeedsMoreThanHalf is the quorum of N/2+1.
func TestEvenNumberOfNodesNeedsMoreThanHalf(t *testing.T) {
	n := newCluster(t)
	l, err := redlatch.NewRedlock([]redis.UniversalClient{n.direct[0], n.direct[1], n.direct[2], n.direct[3]})
	require.NoError(t, err)
	for i := range 2 {
		require.NoError(t, mustLock(t, l, "k").Unlock(t.Context()))
		n.settled(t, "k")
		require.NoError(t, n.direct[i].Set(t.Context(), "k"+fmt.Sprint(i), "another", 0).Err())
	}
	require.NoError(t, n.direct[0].Set(t.Context(), "half", "another", 0).Err())
	require.NoError(t, n.direct[1].Set(t.Context(), "half", "another", 0).Err())
	_, err = l.TryLock(t.Context(), "half")
	require.ErrorIs(t, err, redlatch.ErrNotAcquired)
}

// TestSickMinorityCostsNoTime bounds each call, with the client's timeouts at their defaults.
func TestSickMinorityCostsNoTime(t *testing.T) {
	n := newCluster(t)
	l := n.locker(t, true)
	cycles := func(what string) time.Duration {
		var took []time.Duration
		timed := func(f func() error) {
			begin := time.Now()
			require.NoError(t, f(), what)
			took = append(took, time.Since(begin))
			require.Less(t, took[len(took)-1], 100*time.Millisecond, what)
		}
		for range 30 {
			var lock *redlatch.Lock
			timed(func() (err error) { lock, err = l.Lock(t.Context(), "k"); return err })
			timed(func() error { return lock.Extend(t.Context(), time.Minute) })
			timed(func() error { return lock.Unlock(t.Context()) })
		}
		slices.Sort(took)
		return took[len(took)/2]
	}
	healthy := cycles("healthy")
	for _, sick := range []struct {
		what  string
		nodes int
		fault func(p *faultproxy.Proxy)
	}{
		{"one slow", 1, func(p *faultproxy.Proxy) { p.Delay(50 * time.Millisecond) }},
		{"one hung", 1, (*faultproxy.Proxy).Silence},
		{"two hung", 2, (*faultproxy.Proxy).Silence},
		{"one refused", 1, (*faultproxy.Proxy).Refuse},
		{"two refused", 2, (*faultproxy.Proxy).Refuse},
	} {
		for _, p := range n.proxies[:sick.nodes] {
			sick.fault(p)
		}
		median := cycles(sick.what)
		t.Logf("%s: median %v, healthy %v", sick.what, median, healthy)
		require.Less(t, median, 2*healthy+2*time.Millisecond, sick.what)
		for _, p := range n.proxies[:sick.nodes] {
			p.Heal()
		}
	}
	n.noLocks(t)
}

// TestHungMajorityIsNoQuorum bounds the failure too, and leaves nothing when the nodes return.
func TestHungMajorityIsNoQuorum(t *testing.T) {
	t.Parallel()
	n := newCluster(t)
	l := n.locker(t, true)
	brief := redlatch.WithOpTimeout(500 * time.Millisecond)
	held := mustLock(t, l, "held", brief)
	for _, p := range n.proxies[:3] {
		p.Silence()
	}
	for what, f := range map[string]func() error{
		"TryLock": func() error { _, err := l.TryLock(t.Context(), "k", brief); return err },
		"Adopt":   func() error { _, err := l.Adopt(t.Context(), "k", "token", brief); return err },
		"Extend":  func() error { return held.Extend(t.Context(), time.Hour) },
	} {
		begin := time.Now()
		err := f()
		require.ErrorIs(t, err, redlatch.ErrNoQuorum, what)
		require.NotErrorIs(t, err, redlatch.ErrNotAcquired, what)
		require.NotErrorIs(t, err, redlatch.ErrLost, what)
		require.Less(t, time.Since(begin), 2*time.Second, what)
	}
	require.NoError(t, held.Err(), "silence keeps the lease")
	require.ErrorIs(t, held.Unlock(t.Context()), redlatch.ErrNoQuorum)
	require.ErrorIs(t, held.Err(), redlatch.ErrReleased)
	for _, p := range n.proxies[:3] {
		p.Heal()
	}
	n.noLocks(t)
}

// TestErrorWaitsUntilItIsCertain: one node held, one dead, one hung, two free. A quorum can be
// granted until the hung one has not answered in time; then a quorum answered, and it is held.
func TestErrorWaitsUntilItIsCertain(t *testing.T) {
	t.Parallel()
	n := newCluster(t)
	l := n.locker(t, true)
	require.NoError(t, n.direct[0].Set(t.Context(), "k", "another", 0).Err())
	n.proxies[1].Refuse()
	n.proxies[2].Silence()
	_, err := l.TryLock(t.Context(), "k", redlatch.WithOpTimeout(300*time.Millisecond))
	require.ErrorIs(t, err, redlatch.ErrNotAcquired)
	require.NotErrorIs(t, err, redlatch.ErrNoQuorum)
	require.Equal(t, 1, n.have(t, "k"))

	// Two dead and one held: no quorum can be granted, and none can answer.
	n.proxies[2].Refuse()
	n.proxies[3].Refuse()
	_, err = l.TryLock(t.Context(), "k")
	require.ErrorIs(t, err, redlatch.ErrNoQuorum)
	require.NotErrorIs(t, err, redlatch.ErrNotAcquired)
}

// TestHealthyNodesKeepNoOrphan runs 10,000 cycles on healthy nodes, and 1,000 with one whose
// answers come late: each release follows its acquire.
func TestHealthyNodesKeepNoOrphan(t *testing.T) {
	t.Parallel()
	n := newCluster(t)
	l := n.locker(t, true)
	cycles := func(workers, each int) {
		var wg sync.WaitGroup
		var failures atomic.Int64
		for w := range workers {
			wg.Go(func() {
				for range each {
					lock, err := l.TryLock(t.Context(), fmt.Sprint("k", w))
					if err != nil || lock.Unlock(t.Context()) != nil {
						failures.Add(1)
					}
				}
			})
		}
		wg.Wait()
		require.Zero(t, failures.Load(), "an attempt must not refuse its own successor")
		n.noLocks(t)
	}
	cycles(8, 1250)
	n.proxies[4].DelayFunc(func() time.Duration { return rand.N(20 * time.Millisecond) })
	cycles(20, 50)
}

// TestSlowQuorumIsNoGrant is rule 2 on a quorum.
func TestSlowQuorumIsNoGrant(t *testing.T) {
	t.Parallel()
	n := newCluster(t)
	l := n.locker(t, true)
	for _, p := range n.proxies {
		p.Delay(300 * time.Millisecond)
	}
	_, err := l.TryLock(t.Context(), "k", redlatch.WithTTL(200*time.Millisecond), redlatch.WithOpTimeout(5*time.Second))
	require.ErrorIs(t, err, redlatch.ErrLost)
	for _, p := range n.proxies {
		p.Heal()
	}
	n.noLocks(t)
}

// TestPausedAttemptNeverReturnsALock: its replies are held back for longer than the TTL, and
// another client is granted meanwhile.
func TestPausedAttemptNeverReturnsALock(t *testing.T) {
	n := newCluster(t)
	l := n.locker(t, true)
	for _, p := range n.proxies {
		p.Delay(time.Minute)
	}
	result := make(chan error)
	go func() {
		_, err := l.TryLock(context.Background(), "k", redlatch.WithTTL(300*time.Millisecond), redlatch.WithOpTimeout(time.Minute))
		result <- err
	}()
	eventually(t, "the attempt took the key", func() bool { return n.have(t, "k") == 5 })
	other, err := n.locker(t, false, redlatch.WithTTL(time.Minute)).Lock(t.Context(), "k")
	require.NoError(t, err)
	for _, p := range n.proxies {
		p.Heal()
	}
	require.Error(t, <-result)
	require.NoError(t, other.Err())
	require.NoError(t, other.Unlock(t.Context()))
	n.noLocks(t)
}

// TestExtendHealsEmptiedNodes: only where the key is absent, and not counted.
func TestExtendHealsEmptiedNodes(t *testing.T) {
	n := newCluster(t)
	l := n.locker(t, false)
	lock := mustLock(t, l, "k", redlatch.WithoutRenewal())
	eventually(t, "on all nodes", func() bool { return n.have(t, "k") == 5 })
	require.NoError(t, n.direct[0].FlushAll(t.Context()).Err())
	require.NoError(t, n.direct[1].Set(t.Context(), "k", "a stranger", 0).Err())
	require.NoError(t, lock.Extend(t.Context(), time.Minute))
	eventually(t, "healed", func() bool { return n.direct[0].Get(t.Context(), "k").Val() == lock.Token() })
	require.Equal(t, "a stranger", n.direct[1].Get(t.Context(), "k").Val())
	require.Equal(t, fmt.Sprint(lock.Fence()), n.direct[0].Get(t.Context(), "{k}:fence:k").Val())
	require.Positive(t, n.direct[0].PTTL(t.Context(), "k").Val())
	require.NoError(t, lock.Unlock(t.Context()))
	eventually(t, "released", func() bool { return n.have(t, "k") == 1 })

	lock = mustLock(t, l, "k2", redlatch.WithoutRenewal())
	eventually(t, "on all nodes", func() bool { return n.have(t, "k2") == 5 })
	for _, c := range n.direct[:3] {
		require.NoError(t, c.FlushAll(t.Context()).Err())
	}
	require.ErrorIs(t, lock.Extend(t.Context(), time.Minute), redlatch.ErrLost)
	require.ErrorIs(t, lock.Err(), redlatch.ErrLost)
	require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrLost)
	n.settled(t, "k2")
}

// TestLostRepliesOfAllNodesChangeNothing is rule 3 on a quorum.
func TestLostRepliesOfAllNodesChangeNothing(t *testing.T) {
	n := newCluster(t)
	l := n.locker(t, true)
	lose := func() {
		for _, p := range n.proxies {
			p.LoseReplies(1, "evalsha")
		}
	}
	lose()
	lock, err := l.Lock(t.Context(), "k")
	require.NoError(t, err)
	lose()
	require.NoError(t, lock.Extend(t.Context(), time.Minute))
	lose()
	require.NoError(t, lock.Unlock(t.Context()))
	n.noLocks(t)
	for _, p := range n.proxies {
		require.Positive(t, p.Lost())
	}
}

// TestStragglerOfALostLockIsReleased is rule 4: an acquire that lands after the lease has ended
// must not stay.
func TestStragglerOfALostLockIsReleased(t *testing.T) {
	n := newCluster(t)
	l := n.locker(t, true)
	n.proxies[4].Silence()
	lock := mustLock(t, l, "k", redlatch.WithTTL(time.Hour), redlatch.WithOpTimeout(300*time.Millisecond), redlatch.WithoutRenewal())
	eventually(t, "the other four have it", func() bool { return n.have(t, "k") == 4 })
	for _, c := range n.direct[:4] {
		require.NoError(t, c.Del(t.Context(), "k").Err())
	}
	require.ErrorIs(t, lock.Extend(t.Context(), time.Hour), redlatch.ErrLost)
	n.proxies[4].Heal()
	eventually(t, "the straggler landed", func() bool {
		return n.direct[4].Exists(t.Context(), "{k}:fence:k").Val() == 1
	})
	n.settled(t, "k")
}

// TestContendersAreServedOneByOne: 30 contenders, 3 grants each with 5 ms of work.
func TestContendersAreServedOneByOne(t *testing.T) {
	t.Parallel()
	n := newCluster(t)
	var inside, grants, broken atomic.Int64
	var wg sync.WaitGroup
	var lockers []redlatch.Locker
	for range 30 {
		lockers = append(lockers, n.locker(t, false))
	}
	begin := time.Now()
	for _, l := range lockers {
		wg.Go(func() {
			for range 3 {
				err := redlatch.Do(t.Context(), l, "k", func(context.Context, *redlatch.Lock) error {
					if inside.Add(1) != 1 {
						broken.Add(1)
					}
					<-time.After(5 * time.Millisecond)
					inside.Add(-1)
					grants.Add(1)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("90 grants of 5 ms in %v", time.Since(begin))
	require.Zero(t, broken.Load())
	require.Equal(t, int64(90), grants.Load())
}

// TestChosenTokensDoNotKeepEachOtherOut is rule 15: three waiters have one node each, with tokens of
// their own choice. What a refused attempt holds of a minority is no lock of before.
func TestChosenTokensDoNotKeepEachOtherOut(t *testing.T) {
	n := newCluster(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for i, s := range n.servers {
		require.NoError(t, s.Client(t).Set(ctx, "k", fmt.Sprint("worker-", i), 300*time.Millisecond).Err())
	}
	var wg sync.WaitGroup
	for i := range n.servers {
		l := n.locker(t, true, redlatch.WithTTL(300*time.Millisecond))
		wg.Go(func() {
			lock, err := l.Lock(ctx, "k", redlatch.WithToken(fmt.Sprint("worker-", i)))
			if err != nil {
				t.Error(err)
				return
			}
			_ = lock.Unlock(ctx) // so short a lease may end before
		})
	}
	wg.Wait()
}

// TestLateGrantOfARefusedTokenIsReleased is for a token of the caller's choice, whose late grants nobody
// else undoes: so many nodes are another's that it is refused before the others have answered.
func TestLateGrantOfARefusedTokenIsReleased(t *testing.T) {
	n := newCluster(t)
	l := n.locker(t, true)
	for _, c := range n.direct[:3] {
		require.NoError(t, c.Set(t.Context(), "k", "another", time.Hour).Err())
	}
	for i, p := range n.proxies { // so that all were asked when three have refused
		p.Delay(map[bool]time.Duration{true: 300 * time.Millisecond, false: time.Second}[i < 3])
	}
	_, err := l.TryLock(t.Context(), "k", redlatch.WithToken("job-7"))
	require.ErrorIs(t, err, redlatch.ErrNotAcquired)
	for _, c := range n.direct[3:] {
		eventually(t, "it was granted", func() bool { return c.Exists(t.Context(), "{k}:fence:k").Val() == 1 })
		gone(t, c, "k")
	}
}

// TestBurstOnHealthyNodesIsNotShed: 500 attempts at once, all granted.
func TestBurstOnHealthyNodesIsNotShed(t *testing.T) {
	n := newCluster(t)
	l := n.locker(t, true)
	var wg sync.WaitGroup
	failures := make(chan error, 1000)
	for i := range 500 {
		wg.Go(func() {
			lock, err := l.TryLock(t.Context(), fmt.Sprint("k", i))
			if err == nil {
				err = lock.Unlock(t.Context())
			}
			if err != nil {
				failures <- err
			}
		})
	}
	wg.Wait()
	close(failures)
	require.NoError(t, <-failures)
	n.noLocks(t)
}

// TestCancelledQuorumLocksLeaveNoKey is rule 17: 300 Locks end at random moments over jittery
// links.
func TestCancelledQuorumLocksLeaveNoKey(t *testing.T) {
	n := newCluster(t)
	l := n.locker(t, true)
	for _, p := range n.proxies {
		p.DelayFunc(func() time.Duration { return rand.N(5 * time.Millisecond) })
	}
	var wg sync.WaitGroup
	var failures atomic.Int64
	for range 20 {
		wg.Go(func() {
			for i := range 15 {
				ctx, cancel := context.WithTimeout(t.Context(), rand.N(20*time.Millisecond))
				lock, err := l.Lock(ctx, fmt.Sprint("k", i%3))
				if err == nil {
					err = lock.Unlock(ctx)
				} else if errors.Is(err, redlatch.ErrNotAcquired) && errors.Is(err, ctx.Err()) {
					err = nil
				}
				if err != nil {
					failures.Add(1)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	require.Zero(t, failures.Load())
	n.noLocks(t)
}

// TestHungNodePilesNothingUp: 2,000 cycles with one node hung, on keys of their own, cost few
// goroutines, and nothing is left when it returns.
func TestHungNodePilesNothingUp(t *testing.T) {
	n := newCluster(t)
	l := n.locker(t, true)
	workers := func() int64 { // the proxies have goroutines too: count those of the package
		stacks := make([]byte, 4<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		return int64(strings.Count(string(stacks), "redlatch.(*crew).work("))
	}
	before := workers() // of locks that other tests left to expire
	n.proxies[4].Silence()
	var peak, failures atomic.Int64
	var wg sync.WaitGroup
	for w := range 10 {
		wg.Go(func() {
			for i := range 200 {
				lock, err := l.TryLock(t.Context(), fmt.Sprint("k", w, "-", i))
				if err != nil || lock.Unlock(t.Context()) != nil {
					failures.Add(1)
				}
				if i%20 == 0 {
					peak.Store(max(peak.Load(), workers()))
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d goroutines more at the peak", peak.Load()-before)
	require.Zero(t, failures.Load())
	require.LessOrEqual(t, peak.Load()-before, int64(300))
	n.proxies[4].Heal()
	n.noLocks(t)
}

// TestTwoClientsOfOneServerAreRefused: found when they are used, and never a lock on two votes of
// one server.
func TestTwoClientsOfOneServerAreRefused(t *testing.T) {
	n := newCluster(t)
	twin := n.servers[0].Client(t)
	_, err := redlatch.NewRedlock([]redis.UniversalClient{twin, n.direct[1], twin})
	require.ErrorIs(t, err, redlatch.ErrInvalidOption)
	_, err = redlatch.NewRedlock(nil)
	require.ErrorIs(t, err, redlatch.ErrInvalidOption)

	for range 50 {
		l, err := redlatch.NewRedlock([]redis.UniversalClient{n.direct[0], twin, n.direct[1]})
		require.NoError(t, err)
		// The third node is held: two votes of one server would be the quorum.
		require.NoError(t, n.direct[1].Set(t.Context(), "k", "another", 0).Err())
		eventually(t, "what was taken in the round before is given back", func() bool {
			return n.direct[0].Exists(t.Context(), "k").Val() == 0
		})
		_, err = l.TryLock(t.Context(), "k")
		require.ErrorIs(t, err, redlatch.ErrInvalidOption)
		require.ErrorContains(t, err, "nodes 0 and 1 are one server")
		_, err = l.Inspect(t.Context(), "k")
		require.ErrorIs(t, err, redlatch.ErrInvalidOption)
		_, err = l.Adopt(t.Context(), "k", "token")
		require.ErrorIs(t, err, redlatch.ErrInvalidOption)
	}
	require.NoError(t, n.direct[1].Del(t.Context(), "k").Err())
	n.noLocks(t)
}
