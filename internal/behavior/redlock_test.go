package behavior_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
)

// cluster is five independent nodes.
type cluster struct {
	servers []*miniredis.Miniredis
	direct  []*redis.Client
}

// onCluster runs a test with five nodes in a synctest bubble: its waits take no real time.
func onCluster(t *testing.T, test func(t *testing.T, n *cluster)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := &cluster{}
		for i := range 5 {
			m := miniredis.NewMiniRedis()
			m.ClockTTL(true)
			t.Cleanup(m.Close)
			n.servers = append(n.servers, m)
			n.direct = append(n.direct, n.client(t, i))
		}
		defer time.Sleep(time.Minute) // idle goroutines end
		test(t, n)
	})
}

// addr returns the address of a node in errors and events.
func (n *cluster) addr(node int) string { return fmt.Sprint("127.0.0.1:", 7000+node) }

func (n *cluster) client(t *testing.T, node int) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: n.addr(node), Dialer: func(context.Context, string, string) (net.Conn, error) { return n.servers[node].Dial() }})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// locker returns a Redlock with clients of its own, and its links to the nodes.
func (n *cluster) locker(t *testing.T, opts ...redlatch.Option) (l redlatch.Locker, links []*link) {
	t.Helper()
	var clients []*redis.Client
	for i := range n.servers {
		clients = append(clients, n.client(t, i))
		links = append(links, linkOf(t, clients[i]))
	}
	return locktest.Redlock(t, clients, append([]redlatch.Option{longTTL}, opts...)...), links
}

// requireOn waits until so many nodes have key: commands may still be in flight to a minority.
func (n *cluster) requireOn(t *testing.T, key string, want int) {
	t.Helper()
	eventually(t, fmt.Sprint(want, " nodes have ", key), func() bool {
		have := 0
		for _, m := range n.servers {
			if m.Exists(key) {
				have++
			}
		}
		return have == want
	})
}

// TestQuorumOfFreeNodesIsGranted is step 3 of the algorithm, for all 32 patterns of nodes that are held by another. Of four nodes
// the quorum is three. A refusal names the owner of most nodes.
func TestQuorumOfFreeNodesIsGranted(t *testing.T) {
	onCluster(t, func(t *testing.T, n *cluster) {
		l, _ := n.locker(t)
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
				requireOnly(t, err, redlatch.ErrNotAcquired, key)
				quorum, ok := errors.AsType[*redlatch.QuorumError](err)
				require.True(t, ok)
				require.Equal(t, 3, quorum.Need)
				require.Len(t, quorum.Nodes, 5)
			}
			n.requireOn(t, key, 5-free)
		}

		four := locktest.Redlock(t, n.direct[:4], redlatch.WithOwner("b"))
		require.NoError(t, n.direct[0].Set(t.Context(), "k", "crashed/"+uuid.NewString(), time.Hour).Err())
		lock := mustLock(t, four, "k")
		_, err := l.TryLock(t.Context(), "k")
		require.ErrorContains(t, err, `held by "b"`)
		require.NoError(t, lock.Unlock(t.Context()))
		require.NoError(t, n.direct[1].Set(t.Context(), "k", "crashed/"+uuid.NewString(), time.Hour).Err())
		_, err = four.TryLock(t.Context(), "k")
		requireOnly(t, err, redlatch.ErrNotAcquired)
	})
}

// TestExtendRestoresTheLockOnEmptiedNodes: Extend restores the lock on nodes where the key is absent, for as long as the lease
// lasts, also that of an adopter. These nodes do not count for the quorum, and data of others stay. A lock that somebody else has
// released is not restored.
func TestExtendRestoresTheLockOnEmptiedNodes(t *testing.T) {
	onCluster(t, func(t *testing.T, n *cluster) {
		l, _ := n.locker(t, redlatch.WithoutRenewal())
		for _, adopts := range []bool{false, true} {
			lock := mustLock(t, l, "k")
			if adopts {
				var err error
				lock, err = l.Adopt(t.Context(), "k", lock.Token())
				require.NoError(t, err)
			}
			n.requireOn(t, "k", 5)
			require.NoError(t, n.direct[0].FlushAll(t.Context()).Err())
			require.NoError(t, n.direct[1].Set(t.Context(), "k", "a stranger", 0).Err())
			require.NoError(t, lock.Extend(t.Context(), time.Second))
			n.requireOn(t, "k", 5)
			require.Equal(t, lock.Token(), n.direct[0].Get(t.Context(), "k").Val())
			require.Greater(t, n.direct[0].PTTL(t.Context(), "k").Val(), 59*time.Minute)
			require.Equal(t, fmt.Sprint(lock.Fence()/fencesOfTick), n.direct[0].Get(t.Context(), "{k}:fence:k").Val())
			require.Equal(t, "a stranger", n.direct[1].Get(t.Context(), "k").Val())
			require.NoError(t, lock.Unlock(t.Context()))
			n.requireOn(t, "k", 1)
			require.NoError(t, n.direct[1].Del(t.Context(), "k").Err())
		}
		lock := mustLock(t, l, "k")
		n.requireOn(t, "k", 5)
		for _, c := range n.direct[:3] {
			require.NoError(t, c.FlushAll(t.Context()).Err())
		}
		requireOnly(t, lock.Extend(t.Context(), time.Minute), redlatch.ErrLost)
		require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrLost)
		n.requireOn(t, "k", 0)

		lock = mustLock(t, l, "k")
		n.requireOn(t, "k", 5)
		adopted, err := l.Adopt(t.Context(), "k", lock.Token())
		require.NoError(t, err)
		require.NoError(t, adopted.Unlock(t.Context()))
		n.requireOn(t, "k", 0)
		requireOnly(t, lock.Extend(t.Context(), time.Hour), redlatch.ErrLost)
		time.Sleep(time.Minute)
		n.requireOn(t, "k", 0)
	})
}

// TestTwoClientsOfOneServerAreRefused: two votes of one server never make a lock. Clients with one address are clients of one
// server, whatever database they use. The options of failover clients have no address, so nothing says that they are the same.
func TestTwoClientsOfOneServerAreRefused(t *testing.T) {
	t.Parallel()
	client := func(addr string, db int) *redis.Client {
		c := redis.NewClient(&redis.Options{Addr: addr, DB: db})
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	first, second := client("127.0.0.1:1", 0), client("127.0.0.1:2", 0)
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": "127.0.0.1:3", "two": "127.0.0.1:4"}})
	t.Cleanup(func() { _ = ring.Close() })
	for name, clients := range map[string][]redis.UniversalClient{
		"one client twice":        {first, second, first},
		"another client":          {first, second, client("127.0.0.1:1", 0)},
		"another database":        {first, second, client("127.0.0.1:1", 1)},
		"in a struct":             {first, second, struct{ *redis.Client }{client("127.0.0.1:1", 0)}},
		"a ring and its shard":    {ring, second, client("127.0.0.1:4", 0)},
		"one ring in two clients": {ring, second, struct{ *redis.Ring }{ring}},
	} {
		_, err := redlatch.NewRedlock(clients)
		requireOnly(t, err, redlatch.ErrInvalidOption, name)
		require.ErrorContains(t, err, "nodes 0 and 2 are the same server", name)
	}
	_, err := redlatch.NewRedlock(nil)
	requireOnly(t, err, redlatch.ErrInvalidOption)
	var clients []redis.UniversalClient
	for _, master := range []string{"one", "two"} {
		c := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: master, SentinelAddrs: []string{"127.0.0.1:1"}})
		t.Cleanup(func() { _ = c.Close() })
		clients = append(clients, c)
	}
	_, err = redlatch.NewRedlock(clients)
	require.NoError(t, err)
}

// TestOneOfManyWhoTryAtOnceIsGranted: six processes run a job at the same ticks. Their attempts split the votes, and are retried
// until each tick has exactly one run.
func TestOneOfManyWhoTryAtOnceIsGranted(t *testing.T) {
	onCluster(t, func(t *testing.T, n *cluster) {
		var lockers []redlatch.Locker
		for range 6 {
			l, links := n.locker(t)
			for _, link := range links {
				link.set(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
					time.Sleep(rand.N(time.Millisecond))
					return next(ctx, cmd)
				})
			}
			lockers = append(lockers, l)
		}
		for _, jitter := range []time.Duration{0, time.Millisecond, 10 * time.Millisecond} {
			for tick := range 20 {
				var runs atomic.Int64
				var tried, done sync.WaitGroup
				tried.Add(len(lockers))
				for _, l := range lockers {
					done.Go(func() {
						time.Sleep(rand.N(jitter + 1))
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
				n.requireOn(t, "job", 0)
			}
		}
	})
}

// TestFencesOfAQuorumGrow: before each grant, nodes of a random minority hang, refuse connections, lose their replies or hold the
// key for another owner. A quarter of the locks is deleted, and another quarter adopted, though the counters differ.
func TestFencesOfAQuorumGrow(t *testing.T) {
	onCluster(t, func(t *testing.T, n *cluster) {
		type locker struct {
			redlatch.Locker
			links []*link
		}
		var lockers []locker
		for range 3 {
			l, links := n.locker(t, redlatch.WithTTL(10*time.Second), redlatch.WithoutRenewal())
			lockers = append(lockers, locker{l, links})
		}
		var seen locktest.FenceLog
		grants := 100
		for range 100 {
			l := lockers[rand.IntN(3)]
			for _, i := range rand.Perm(5)[:rand.IntN(3)] {
				[]func(){
					func() { n.direct[i].SetNX(t.Context(), "k", "another", time.Second) },
					l.links[i].hang, l.links[i].refuse, func() { l.links[i].lose(1) },
				}[rand.IntN(4)]()
			}
			lock, err := l.Lock(t.Context(), "k")
			require.NoError(t, err)
			seen.Add(lock.Fence())
			for _, link := range l.links {
				link.heal()
			}
			switch rand.IntN(4) {
			case 0:
				for _, m := range n.servers {
					m.Del("k")
				}
			case 1:
				n.direct[rand.IntN(5)].IncrBy(t.Context(), "{k}:fence:k", rand.Int64N(5))
				if adopted, err := l.Adopt(t.Context(), "k", lock.Token()); err == nil { // a node may have answered late
					seen.Add(adopted.Fence())
					grants++
				}
			}
			_ = lock.Unlock(t.Context()) // it may be lost
			time.Sleep(2 * time.Second)
		}
		seen.RequireGrowth(t, grants)
		for _, c := range n.direct {
			requireSoundFences(t, c)
		}
	})
}
