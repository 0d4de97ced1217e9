package behavior_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// TestFencesOfOneNodeGrow: 8 clients get 800 grants. Then 20 more follow, each after a FLUSHALL. There the clock of
// the server keeps the order.
func TestFencesOfOneNodeGrow(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	var seen locktest.FenceLog
	var wg sync.WaitGroup
	for range 8 {
		l := newLocker(t, s.Client(t), redlatch.WithPollInterval(time.Millisecond, time.Millisecond))
		wg.Go(func() {
			for range 100 {
				if err := redlatch.Do(t.Context(), l, "k", func(_ context.Context, lock *redlatch.Lock) error {
					seen.Add(lock.Fence())
					return nil
				}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	locktest.RequireSoundFences(t, s.Client(t))
	l, direct := newLocker(t, s.Client(t)), s.Client(t)
	for range 20 {
		require.NoError(t, direct.FlushAll(t.Context()).Err())
		lock := mustLock(t, l, "k")
		seen.Add(lock.Fence())
		require.NoError(t, lock.Unlock(t.Context()))
	}
	seen.RequireGrowth(t, 820)
}

// TestFencesOfAQuorumGrow: five nodes grant 400 locks. Before each grant, nodes of a random minority hang, lose their
// connections or hold the key for another owner. The keys of a quarter of the locks are deleted.
func TestFencesOfAQuorumGrow(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	n := newCluster(t)
	lockers := []redlatch.Locker{n.locker(t, true), n.locker(t, true), n.locker(t, true)}
	var seen locktest.FenceLog
	for range 400 {
		sick := random.Perm(5)[:random.IntN(3)]
		heal := func() {}
		for _, i := range sick {
			switch random.IntN(3) {
			case 0:
				n.direct[i].SetNX(t.Context(), "k", "another", 10*time.Second)
			case 1:
				n.proxies[i].Silence()
			case 2:
				n.proxies[i].Cut()
			}
			was := heal
			heal = func() { was(); n.proxies[i].Heal() }
		}
		lock, err := lockers[random.IntN(3)].Lock(t.Context(), "k")
		require.NoError(t, err)
		seen.Add(lock.Fence())
		if random.IntN(4) == 0 {
			heal()
			for _, c := range n.direct {
				require.NoError(t, c.Del(t.Context(), "k").Err())
			}
			_ = lock.Unlock(t.Context()) // its error does not matter: the lock is lost
		} else {
			require.NoError(t, lock.Unlock(t.Context()))
			heal()
		}
		for _, c := range n.direct {
			if c.Get(t.Context(), "k").Val() == "another" {
				require.NoError(t, c.Del(t.Context(), "k").Err())
			}
		}
	}
	seen.RequireGrowth(t, 400)
	for _, c := range n.direct {
		locktest.RequireSoundFences(t, c)
	}
}

// TestFenceCostsNoExtraRoundTrip: usually a node runs two scripts for a lock and its Unlock: acquire and release.
func TestFenceCostsNoExtraRoundTrip(t *testing.T) {
	n := newCluster(t)
	l := n.locker(t, true)
	calls := func() float64 {
		info := n.direct[0].Info(t.Context(), "commandstats").Val()
		found := regexp.MustCompile(`cmdstat_evalsha:calls=(\d+)`).FindStringSubmatch(info)
		require.NotNil(t, found)
		number, err := strconv.ParseFloat(found[1], 64)
		require.NoError(t, err)
		return number
	}
	before := calls()
	for range 100 {
		require.NoError(t, mustLock(t, l, "k").Unlock(t.Context()))
	}
	n.noLocks(t)
	require.LessOrEqual(t, (calls()-before)/100, 2.3)
}

// TestRestoredQuorumIssuesNoOlderFence: two nodes of the quorum lose their data, one after the other. An Extend restores
// the lock on each of them, and these nodes make the next grant. A vote is at least the clock in whole seconds, and all of this
// usually takes less than a second. So only the counters keep the order.
func TestRestoredQuorumIssuesNoOlderFence(t *testing.T) {
	t.Parallel()
	n := newCluster(t)
	l := n.locker(t, true, redlatch.WithoutRenewal(), redlatch.WithTTL(time.Minute))
	for round := range 5 {
		key := fmt.Sprint("k", round)
		for _, p := range n.proxies[3:] {
			p.Refuse()
		}
		var last uint64
		for range 3 { // so that the counters are ahead of the clock
			lock := mustLock(t, l, key)
			last = lock.Fence()
			require.NoError(t, lock.Unlock(t.Context()))
			eventually(t, "released", func() bool { return n.have(t, key) == 0 })
		}
		lock := mustLock(t, l, key)
		require.Greater(t, lock.Fence(), last)
		for _, p := range n.proxies[3:] {
			p.Heal()
		}
		for _, i := range []int{0, 1} {
			require.NoError(t, lock.Extend(t.Context(), time.Minute))
			eventually(t, "all nodes have the lock", func() bool {
				if n.holds(t, lock) {
					return true
				}
				require.NoError(t, lock.Extend(t.Context(), time.Minute)) // repeated, since an earlier lock may have had the key
				return false
			})
			require.NoError(t, n.direct[i].FlushAll(t.Context()).Err())
			require.NoError(t, lock.Extend(t.Context(), time.Minute))
			eventually(t, "the emptied node has restored the lock", func() bool { return n.holds(t, lock) })
		}
		require.NoError(t, lock.Unlock(t.Context()))
		eventually(t, "released", func() bool { return n.have(t, key) == 0 })
		n.proxies[2].Refuse() // all other nodes have restored the lock
		next := mustLock(t, l, key)
		require.Greater(t, next.Fence(), lock.Fence())
		require.NoError(t, next.Unlock(t.Context()))
		n.proxies[2].Heal()
	}
}

// TestAdoptedQuorumLockHasAFence: an adoption raises the counters. If no quorum of counters is at the same number,
// the nodes agree on a number that is higher than any issued fence.
func TestAdoptedQuorumLockHasAFence(t *testing.T) {
	n := newCluster(t)
	l := n.locker(t, false, redlatch.WithoutRenewal())
	lock := mustLock(t, l, "k")
	eventually(t, "all nodes have the key", func() bool { return n.have(t, "k") == 5 })
	for i, c := range n.direct {
		require.NoError(t, c.Set(t.Context(), "{k}:fence:k", lock.Fence()/locktest.FencesOfTick+uint64(i), time.Hour).Err())
	}
	adopted, err := l.Adopt(t.Context(), "k", lock.Token())
	require.NoError(t, err)
	require.GreaterOrEqual(t, adopted.Fence(), lock.Fence()+3*locktest.FencesOfTick, "the lowest fence that a quorum can agree on")
	require.NoError(t, adopted.Unlock(t.Context()))
	eventually(t, "released", func() bool { return n.have(t, "k") == 0 })
	next := mustLock(t, l, "k")
	require.Greater(t, next.Fence(), adopted.Fence())
	require.NoError(t, next.Unlock(t.Context()))
}

// TestOtherDataOnOneNodeRaiseNoFence: the counter of one node is a number that scripts cannot count exactly.
// The other nodes disagree, and a higher number has to be tried. It is not that of the one node.
func TestOtherDataOnOneNodeRaiseNoFence(t *testing.T) {
	t.Parallel()
	n := newCluster(t)
	l := n.locker(t, false, redlatch.WithoutRenewal())
	lock := mustLock(t, l, "k")
	eventually(t, "all nodes have the key", func() bool { return n.have(t, "k") == 5 })
	for range 20 {
		last := lock.Fence()
		for i, c := range n.direct {
			counter := last/locktest.FencesOfTick + uint64(i)
			if i == 0 {
				counter = 1 << 60
			}
			require.NoError(t, c.Set(t.Context(), "{k}:fence:k", counter, time.Hour).Err())
		}
		adopted, err := l.Adopt(t.Context(), "k", lock.Token())
		require.NoError(t, err)
		require.Greater(t, adopted.Fence(), last)
		require.Less(t, adopted.Fence(), uint64(1<<53))
		require.Equal(t, "1152921504606846976", n.direct[0].Get(t.Context(), "{k}:fence:k").Val())
		lock = adopted
	}
	require.NoError(t, lock.Unlock(t.Context()))
}
