package behavior_test

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

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/faultproxy"
	"github.com/redlatch/redlatch/internal/locktest"
)

// TestSickMinorityCostsNoTime bounds each call, with the client's timeouts at their defaults.
func TestSickMinorityCostsNoTime(t *testing.T) {
	n := newCluster(t)
	l := n.locker(t, true, redlatch.WithOpTimeout(30*time.Second))
	cycles := func(what string) time.Duration {
		var took []time.Duration
		timed := func(f func() error) {
			begin := time.Now()
			require.NoError(t, f(), what)
			took = append(took, time.Since(begin))
			require.Less(t, took[len(took)-1], 5*time.Second, what)
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
		require.Less(t, median, max(2*healthy+2*time.Millisecond, 25*time.Millisecond), sick.what)
		for _, p := range n.proxies[:sick.nodes] {
			p.Heal()
		}
	}
	n.noLocks(t)
}

// TestHungMajorityIsNoQuorum: calls fail in time while a majority hangs, and no lock is left when the nodes return.
func TestHungMajorityIsNoQuorum(t *testing.T) {
	t.Parallel()
	n := newCluster(t)
	l := n.locker(t, true)
	brief := redlatch.WithOpTimeout(500 * time.Millisecond)
	held := locktest.LockSoon(t, l, "held", brief)
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

// TestErrorWaitsUntilItIsCertain: another owner has one node, one is dead, one hangs and two are free. A
// quorum may grant the lock until the hung node times out. Then the lock counts as held, since a quorum
// has answered.
func TestErrorWaitsUntilItIsCertain(t *testing.T) {
	t.Parallel()
	n := newCluster(t)
	l := n.locker(t, true)
	require.NoError(t, n.direct[0].Set(t.Context(), "k", "another", 0).Err())
	n.proxies[1].Refuse()
	n.proxies[2].Silence()
	_, err := l.TryLock(t.Context(), "k", briefly)
	require.ErrorIs(t, err, redlatch.ErrNotAcquired)
	require.NotErrorIs(t, err, redlatch.ErrNoQuorum)
	require.Equal(t, 1, n.have(t, "k"))

	// Three nodes are dead and one is held: no quorum can grant the lock, and none can answer.
	n.proxies[2].Refuse()
	n.proxies[3].Refuse()
	_, err = l.TryLock(t.Context(), "k", briefly)
	require.ErrorIs(t, err, redlatch.ErrNoQuorum)
	require.NotErrorIs(t, err, redlatch.ErrNotAcquired)
}

// TestSilentNodesAreNotWaitedFor: a refused attempt does not wait for nodes that did not
// answer their last call. If it waited, its votes would keep everybody else out meanwhile, and two such
// attempts could keep each other out for ever. Attempts wait again for a node that has answered since.
func TestSilentNodesAreNotWaitedFor(t *testing.T) {
	t.Parallel()
	for _, sick := range []struct {
		what  string
		fault func(p *faultproxy.Proxy)
	}{
		{"hung", (*faultproxy.Proxy).Silence},
		{"refused", (*faultproxy.Proxy).Refuse},
	} {
		t.Run(sick.what, func(t *testing.T) {
			t.Parallel()
			n := newCluster(t)
			l := n.locker(t, true, redlatch.WithOpTimeout(time.Hour))
			try := func() error {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				lock, err := l.TryLock(ctx, "k")
				if err == nil {
					err = lock.Unlock(t.Context())
				}
				return err
			}
			require.NoError(t, n.direct[0].Set(t.Context(), "k", "another", 0).Err())
			for _, p := range n.proxies[3:] {
				sick.fault(p)
			}
			require.NotErrorIs(t, try(), redlatch.ErrNotAcquired, "the sick nodes may still answer")
			eventually(t, "an attempt is refused without the sick nodes", func() bool {
				// A new key: a call for a key whose release is still in flight on a node may never be sent there.
				lock, err := l.TryLock(t.Context(), uuid.NewString(), redlatch.WithOpTimeout(50*time.Millisecond))
				if err == nil {
					err = lock.Unlock(t.Context())
				}
				return err == nil && errors.Is(try(), redlatch.ErrNotAcquired)
			})
			for _, p := range n.proxies[3:] {
				p.Heal()
				p.Delay(100 * time.Millisecond)
			}
			eventually(t, "the votes of the healed nodes count again", func() bool { return try() == nil })
		})
	}
}

// TestSlowQuorumIsNoGrant, on a quorum: whether the nodes vote for one fence or have to agree on one first.
func TestSlowQuorumIsNoGrant(t *testing.T) {
	t.Parallel()
	for name, differ := range map[string]bool{"one fence": false, "votes that differ": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newCluster(t)
			l := n.locker(t, true)
			for i, c := range n.direct {
				if differ {
					require.NoError(t, c.Set(t.Context(), "{k}:fence:k", 1e14+uint64(i), 0).Err())
				}
				n.proxies[i].Delay(300 * time.Millisecond)
			}
			_, err := l.TryLock(t.Context(), "k", redlatch.WithTTL(200*time.Millisecond), redlatch.WithOpTimeout(5*time.Second))
			require.ErrorIs(t, err, redlatch.ErrLost)
			for _, p := range n.proxies {
				p.Heal()
			}
			n.noLocks(t)
		})
	}
}

// TestPausedAttemptNeverReturnsALock: the replies to an attempt are held back for longer than the
// TTL, and meanwhile another client is granted the lock.
func TestPausedAttemptNeverReturnsALock(t *testing.T) {
	t.Parallel()
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
	// The counters outlast the key.
	eventually(t, "the attempt took the key", func() bool { return n.have(t, "{k}:fence:k") == 5 })
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

// TestLostRepliesOfAllNodesChangeNothing, on a quorum: .
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

// TestUnknownOutcomeOnAQuorumLeavesNoKey: when every reply of every node is lost, the attempt
// fails, and its votes are released.
func TestUnknownOutcomeOnAQuorumLeavesNoKey(t *testing.T) {
	t.Parallel()
	n := newCluster(t)
	l := n.locker(t, true)
	require.NoError(t, mustLock(t, l, "warm").Unlock(t.Context()))
	for _, p := range n.proxies {
		p.LoseReplies(1000, "evalsha")
	}
	_, err := l.TryLock(t.Context(), "k", briefly)
	require.ErrorIs(t, err, redlatch.ErrNoQuorum)
	for i, p := range n.proxies {
		require.Positive(t, p.Lost())
		require.Positive(t, n.direct[i].Exists(t.Context(), "{k}:fence:k").Val(), "the attempt was carried out")
	}
	n.noLocks(t)
}

func TestCrashedHolderOfAQuorumCostsItsTTL(t *testing.T) {
	t.Parallel()
	n := newCluster(t)
	crashed := mustLock(t, n.locker(t, false), "k", redlatch.WithoutRenewal(), redlatch.WithTTL(1500*time.Millisecond))
	lock, err := n.locker(t, false).Lock(t.Context(), "k")
	require.NoError(t, err)
	late := time.Since(crashed.Until())
	require.Positive(t, late)
	require.Less(t, late, time.Second)
	require.NoError(t, lock.Unlock(t.Context()))
	n.settled(t, "k")
}

// TestLateAcquireOfALostLockIsReleased: an acquire that runs after the lease has ended is
// released.
func TestLateAcquireOfALostLockIsReleased(t *testing.T) {
	n := newCluster(t)
	l := n.locker(t, true)
	n.proxies[4].Silence()
	lock := mustLock(t, l, "k", redlatch.WithTTL(time.Hour), briefly, redlatch.WithoutRenewal())
	eventually(t, "the other four nodes have the key", func() bool { return n.have(t, "k") == 4 })
	for _, c := range n.direct[:4] {
		require.NoError(t, c.Del(t.Context(), "k").Err())
	}
	require.ErrorIs(t, lock.Extend(t.Context(), time.Hour), redlatch.ErrLost)
	n.proxies[4].Heal()
	eventually(t, "the late acquire has run", func() bool {
		return n.direct[4].Exists(t.Context(), "{k}:fence:k").Val() == 1
	})
	n.settled(t, "k")
}

// TestCancelledQuorumLocksLeaveNoKey: 300 Lock calls end at random moments over jittery
// links.
func TestCancelledQuorumLocksLeaveNoKey(t *testing.T) {
	n := newCluster(t)
	l := n.locker(t, true)
	for _, p := range n.proxies {
		p.DelayFunc(func() time.Duration { return rand.N(5 * time.Millisecond) })
	}
	giveUpAtRandom(t, l, 20*time.Millisecond)
	n.noLocks(t)
}

// TestHungNodePilesNothingUp: 2,000 cycles on keys of their own, with one node hung, start few
// goroutines. No lock is left when the node returns.
func TestHungNodePilesNothingUp(t *testing.T) {
	n := newCluster(t)
	l := n.locker(t, true)
	workers := func() int64 { // counts couriers only, since the proxies have goroutines too
		stacks := make([]byte, 4<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		return int64(strings.Count(string(stacks), "node.(*Node).courier("))
	}
	before := workers() // couriers for locks that other tests left to expire
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
	require.Positive(t, peak.Load()-before)
	require.LessOrEqual(t, peak.Load()-before, int64(300))
	n.proxies[4].Heal()
	n.noLocks(t)
}
