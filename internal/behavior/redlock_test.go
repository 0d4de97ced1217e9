package behavior_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/faultproxy"
	"github.com/redlatch/redlatch/internal/locktest"
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

// locker returns a Redlock whose clients connect to the proxies or, without them, to the servers. Connections to
// the proxies are warmed up.
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
	l, err := redlatch.NewRedlock(clients, append([]redlatch.Option{longTTL, patience}, opts...)...)
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

// holds reports whether a lock has its key on all nodes. The key of a late acquire of an earlier lock does not count.
func (n *cluster) holds(t *testing.T, lock *redlatch.Lock) bool {
	t.Helper()
	for _, c := range n.direct {
		if c.Get(t.Context(), lock.Key()).Val() != lock.Token() {
			return false
		}
	}
	return true
}

// settled waits until no node has key: a release may still be in flight on a minority.
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

// TestEvenNumberOfNodesNeedsMoreThanHalf: the quorum of N nodes is N/2+1.
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

// TestHealthyNodesKeepNoOrphan runs 2,000 cycles on healthy nodes, and 500 with one whose
// answers come late: each release follows its acquire.
func TestHealthyNodesKeepNoOrphan(t *testing.T) {
	t.Parallel()
	n := newCluster(t)
	l := n.locker(t, true, redlatch.WithOpTimeout(10*time.Second))
	cycles := func(workers, each int) {
		var wg sync.WaitGroup
		failures := make(chan error, workers)
		for w := range workers {
			wg.Go(func() {
				for range each {
					lock, err := l.TryLock(t.Context(), fmt.Sprint("k", w))
					if err == nil {
						err = lock.Unlock(t.Context())
					}
					if err != nil {
						failures <- err
						return
					}
				}
			})
		}
		wg.Wait()
		close(failures)
		require.NoError(t, <-failures, "an attempt must not keep the next one out")
		n.noLocks(t)
	}
	cycles(8, 250)
	n.proxies[4].DelayFunc(func() time.Duration { return rand.N(20 * time.Millisecond) })
	cycles(20, 25)
}

// TestExtendRestoresTheLockOnEmptiedNodes: Extend restores the lock on nodes where the key is absent, for as long as the
// lease lasts. These nodes do not count for the quorum.
func TestExtendRestoresTheLockOnEmptiedNodes(t *testing.T) {
	n := newCluster(t)
	l := n.locker(t, false)
	lock := mustLock(t, l, "k", redlatch.WithoutRenewal())
	eventually(t, "on all nodes", func() bool { return n.have(t, "k") == 5 })
	require.NoError(t, n.direct[0].FlushAll(t.Context()).Err())
	require.NoError(t, n.direct[1].Set(t.Context(), "k", "a stranger", 0).Err())
	require.NoError(t, lock.Extend(t.Context(), time.Minute))
	eventually(t, "restored", func() bool { return n.direct[0].Get(t.Context(), "k").Val() == lock.Token() })
	require.Equal(t, "a stranger", n.direct[1].Get(t.Context(), "k").Val())
	require.Equal(t, fmt.Sprint(lock.Fence()/locktest.FencesOfTick), n.direct[0].Get(t.Context(), "{k}:fence:k").Val())
	require.Positive(t, n.direct[0].PTTL(t.Context(), "k").Val())
	require.NoError(t, lock.Extend(t.Context(), time.Hour))
	require.NoError(t, n.direct[2].FlushAll(t.Context()).Err())
	require.NoError(t, lock.Extend(t.Context(), time.Second))
	eventually(t, "restored again", func() bool { return n.direct[2].Get(t.Context(), "k").Val() == lock.Token() })
	require.Greater(t, n.direct[2].PTTL(t.Context(), "k").Val(), 59*time.Minute, "for as long as the lease")
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

// TestFullNodeRestoresALock: a node that has lost the lock restores it even if it is full.
func TestFullNodeRestoresALock(t *testing.T) {
	n := newCluster(t)
	lock := mustLock(t, n.locker(t, false), "k", redlatch.WithoutRenewal())
	eventually(t, "on all nodes", func() bool { return n.have(t, "k") == 5 })
	require.NoError(t, n.direct[0].Del(t.Context(), "k", "{k}:fence:k").Err())
	require.NoError(t, n.direct[0].ConfigSet(t.Context(), "maxmemory", "1").Err())
	require.NoError(t, lock.Extend(t.Context(), time.Minute))
	eventually(t, "restored", func() bool { return n.holds(t, lock) })
	require.Equal(t, fmt.Sprint(lock.Fence()/locktest.FencesOfTick), n.direct[0].Get(t.Context(), "{k}:fence:k").Val())
	require.NoError(t, lock.Unlock(t.Context()))
	n.settled(t, "k")
}

// TestAdopterUnlocksForGood: an adopter has unlocked a lock. An extension by the earlier handle fails, and leaves no key:
// nobody else would release it.
func TestAdopterUnlocksForGood(t *testing.T) {
	n := newCluster(t)
	l := n.locker(t, false)
	lost := mustLock(t, l, "k", redlatch.WithTTL(time.Hour), redlatch.WithoutRenewal())
	adopted, err := l.Adopt(t.Context(), "k", lost.Token())
	require.NoError(t, err)
	require.NoError(t, adopted.Unlock(t.Context()))
	n.settled(t, "k")
	require.ErrorIs(t, lost.Extend(t.Context(), time.Hour), redlatch.ErrLost)
	n.settled(t, "k")
	require.ErrorIs(t, lost.Unlock(t.Context()), redlatch.ErrLost)
}

// TestAdoptedLockIsRestored: Extend of an adopted lock restores it on the nodes that have lost it. Adopt does not.
func TestAdoptedLockIsRestored(t *testing.T) {
	n := newCluster(t)
	l := n.locker(t, false)
	lock := mustLock(t, l, "k", redlatch.WithoutRenewal())
	eventually(t, "on all nodes", func() bool { return n.have(t, "k") == 5 })
	require.NoError(t, n.direct[0].FlushAll(t.Context()).Err())
	adopted, err := l.Adopt(t.Context(), "k", lock.Token(), redlatch.WithoutRenewal())
	require.NoError(t, err)
	require.Equal(t, 4, n.have(t, "k"))
	require.NoError(t, adopted.Extend(t.Context(), time.Minute))
	eventually(t, "restored", func() bool { return n.have(t, "k") == 5 })
	require.NoError(t, adopted.Unlock(t.Context()))
	n.settled(t, "k")
}

// TestContendersAreServedOneByOne: 30 contenders get 3 grants each, with 5 ms of work, and never overlap.
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

// TestBurstOnHealthyNodesIsNotShed: 500 attempts at once are all granted.
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

// TestTwoClientsOfOneServerAreRefused: two votes of one server never make a lock. Clients with one address are clients
// of one server, whatever database they use.
func TestTwoClientsOfOneServerAreRefused(t *testing.T) {
	t.Parallel()
	n := newCluster(t)
	twin, other := n.servers[0].Client(t), *n.servers[0].Options()
	other.DB = 1
	database := redis.NewClient(&other)
	t.Cleanup(func() { _ = database.Close() })
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": "127.0.0.1:1", "two": "127.0.0.1:2"}})
	t.Cleanup(func() { _ = ring.Close() })
	shard := redis.NewClient(&redis.Options{Addr: "127.0.0.1:2"})
	t.Cleanup(func() { _ = shard.Close() })
	for name, clients := range map[string][]redis.UniversalClient{
		"one client twice":        {n.direct[0], n.direct[1], n.direct[0]},
		"another client":          {n.direct[0], n.direct[1], twin},
		"another database":        {n.direct[0], n.direct[1], database},
		"in a struct":             {n.direct[0], n.direct[1], struct{ *redis.Client }{twin}},
		"a ring and its shard":    {ring, n.direct[1], shard},
		"one ring in two clients": {ring, n.direct[1], struct{ *redis.Ring }{ring}},
	} {
		_, err := redlatch.NewRedlock(clients)
		require.ErrorIs(t, err, redlatch.ErrInvalidOption, name)
		require.ErrorContains(t, err, "nodes 0 and 2 are the same server", name)
	}
	_, err := redlatch.NewRedlock(nil)
	require.ErrorIs(t, err, redlatch.ErrInvalidOption)
}

// TestFailoverClientsAreDifferentServers: their options have no address, so nothing says that they are the same.
func TestFailoverClientsAreDifferentServers(t *testing.T) {
	t.Parallel()
	var clients []redis.UniversalClient
	for _, master := range []string{"one", "two"} {
		c := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: master, SentinelAddrs: []string{"127.0.0.1:1"}})
		t.Cleanup(func() { _ = c.Close() })
		clients = append(clients, c)
	}
	_, err := redlatch.NewRedlock(clients)
	require.NoError(t, err)
}

// TestNodesWithOtherDataEndNoWait: somebody's data at the key of some nodes are no reason to stop waiting, also if
// the other nodes are too few for a quorum.
func TestNodesWithOtherDataEndNoWait(t *testing.T) {
	t.Parallel()
	n := newCluster(t)
	waits, trouble := make(chan struct{}), make(chan error, 1000)
	l := n.locker(t, false, redlatch.WithHooks(redlatch.Hooks{
		Waiting: func(redlatch.Event) { close(waits) },
		Trouble: func(e redlatch.Event) { trouble <- e.Err },
	}))
	for _, node := range n.direct {
		require.NoError(t, node.Set(t.Context(), "k", "another", time.Hour).Err())
	}
	granted := make(chan *redlatch.Lock)
	go func() { // ends with the lock
		lock, _ := l.Lock(t.Context(), "k")
		granted <- lock
	}()
	<-waits
	for _, node := range n.direct[:3] {
		_, err := node.TxPipelined(t.Context(), func(p redis.Pipeliner) error { // the waiter may look in between
			p.Del(t.Context(), "k")
			return p.LPush(t.Context(), "k", "data").Err()
		})
		require.NoError(t, err)
	}
	for quorum := true; quorum; {
		select {
		case err := <-trouble:
			quorum = !errors.Is(err, redlatch.ErrNoQuorum) || !strings.Contains(err.Error(), "WRONGTYPE")
		case <-granted:
			require.Fail(t, "the wait has ended")
		}
	}
	for _, node := range n.direct {
		require.NoError(t, node.Del(t.Context(), "k").Err())
	}
	lock := <-granted
	require.NotNil(t, lock)
	require.NoError(t, lock.Unlock(t.Context()))
}

// TestOneOfManyWhoTryAtOnceIsGranted: six processes run a job at the same ticks, on a quorum. Their attempts split the votes, but
// each tick has exactly one run.
func TestOneOfManyWhoTryAtOnceIsGranted(t *testing.T) {
	t.Parallel()
	const processes, ticks = 6, 60
	n := newCluster(t)
	var lockers []redlatch.Locker
	for range processes {
		lockers = append(lockers, n.locker(t, false))
	}
	for _, jitter := range []time.Duration{0, time.Millisecond, 10 * time.Millisecond} {
		for tick := range ticks {
			var runs atomic.Int64
			var tried, done sync.WaitGroup
			tried.Add(processes)
			for _, l := range lockers {
				done.Go(func() {
					if jitter > 0 {
						<-time.After(rand.N(jitter))
					}
					lock, err := l.TryLock(t.Context(), "job")
					tried.Done()
					if err != nil {
						assert.ErrorIs(t, err, redlatch.ErrNotAcquired)
						return
					}
					runs.Add(1)
					tried.Wait() // the job takes longer than the jitter
					assert.NoError(t, lock.Unlock(t.Context()))
				})
			}
			done.Wait()
			require.Equal(t, int64(1), runs.Load(), "%v, tick %d", jitter, tick)
			n.settled(t, "job")
		}
	}
}
