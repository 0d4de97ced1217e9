package behavior_test

import (
	"context"
	"fmt"
	"io"
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
	"github.com/redlatch/redlatch/internal/testing/locktest"
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
	dial := func(context.Context, string, string) (net.Conn, error) { return n.servers[node].Dial() }
	return locktest.NewSite(t, redis.Options{Addr: n.addr(node), Dialer: dial}).Direct
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

// empty deletes all data of some nodes.
func (n *cluster) empty(t *testing.T, nodes ...int) {
	t.Helper()
	for _, i := range nodes {
		require.NoError(t, n.direct[i].FlushAll(t.Context()).Err())
	}
}

// requireOn waits until so many nodes have key, and what is under way was answered: commands may be
// in flight to a minority.
func (n *cluster) requireOn(t *testing.T, key string, want int) {
	t.Helper()
	synctest.Wait()
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

// TestQuorumOfFreeNodesIsGranted is step 3 of the algorithm, for all 32 patterns of nodes that are
// held by another. The fences grow, whichever nodes grant. Of four nodes the quorum is three. A
// refusal names the owner of most nodes.
func TestQuorumOfFreeNodesIsGranted(t *testing.T) {
	onCluster(t, func(t *testing.T, n *cluster) {
		l, _ := n.locker(t)
		var last uint64
		for pattern := range 32 {
			free := 5
			for i, c := range n.direct {
				require.NoError(t, c.Del(t.Context(), "k").Err())
				if pattern>>i&1 == 1 {
					free--
					require.NoError(t, c.Set(t.Context(), "k", "another", time.Hour).Err())
				}
			}
			lock, err := l.TryLock(t.Context(), "k")
			if free >= 3 {
				require.NoError(t, err, "pattern %05b", pattern)
				require.Greater(t, lock.Fence(), last, "pattern %05b", pattern)
				last = lock.Fence()
				require.NoError(t, lock.Unlock(t.Context()))
			} else {
				requireOnly(t, err, redlatch.ErrNotAcquired, "pattern %05b", pattern)
				var quorum *redlatch.QuorumError
				require.ErrorAs(t, err, &quorum)
				require.Equal(t, 3, quorum.Need)
				require.Len(t, quorum.Nodes, 5)
			}
			synctest.Wait() // for the slower nodes
			n.requireOn(t, "k", 5-free)
		}

		four := locktest.Redlock(t, n.direct[:4], redlatch.WithOwner("b"))
		for _, c := range n.direct {
			require.NoError(t, c.FlushAll(t.Context()).Err())
		}
		require.NoError(t, n.direct[0].Set(t.Context(), "k", "crashed/"+uuid.NewString(), time.Hour).Err())
		lock := mustLock(t, four, "k")
		_, err := l.TryLock(t.Context(), "k")
		require.ErrorContains(t, err, `held by "b"`)
		require.NoError(t, lock.Unlock(t.Context()))
		require.NoError(t, n.direct[1].Set(t.Context(), "k", "crashed/"+uuid.NewString(), time.Hour).Err())
		_, err = four.TryLock(t.Context(), "k")
		requireOnly(t, err, redlatch.ErrNotAcquired)
		require.ErrorContains(t, err, "no owner has a quorum of the nodes")
	})
}

// TestExtendRestoresTheLockOnEmptiedNodes: Extend restores the lock on nodes where the key is
// absent, for as long as the lease lasts. These nodes do not count for the quorum, and data of
// others stay.
func TestExtendRestoresTheLockOnEmptiedNodes(t *testing.T) {
	onCluster(t, func(t *testing.T, n *cluster) {
		l, _ := n.locker(t, redlatch.WithoutRenewal())
		lock := mustLock(t, l, "k")
		n.requireOn(t, "k", 5)
		token := n.direct[0].Get(t.Context(), "k").Val()
		require.NoError(t, n.direct[0].FlushAll(t.Context()).Err())
		require.NoError(t, n.direct[1].Set(t.Context(), "k", "a stranger", 0).Err())
		require.NoError(t, lock.Extend(t.Context(), time.Second))
		n.requireOn(t, "k", 5)
		require.Equal(t, token, n.direct[0].Get(t.Context(), "k").Val())
		require.Greater(t, n.direct[0].PTTL(t.Context(), "k").Val(), 59*time.Minute)
		require.Equal(t, fmt.Sprint(lock.Fence()/fencesOfTick), n.direct[0].Get(t.Context(), "{k}:fence:k").Val())
		require.Equal(t, "a stranger", n.direct[1].Get(t.Context(), "k").Val())
		require.NoError(t, lock.Unlock(t.Context()))
		n.requireOn(t, "k", 1)
		require.NoError(t, n.direct[1].Del(t.Context(), "k").Err())

		lock = mustLock(t, l, "k")
		n.requireOn(t, "k", 5)
		n.empty(t, 0, 1, 2)
		requireOnly(t, lock.Extend(t.Context(), time.Minute), redlatch.ErrLost)
		require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrLost)
		n.requireOn(t, "k", 0)
	})
}

// TestSharedLockIsNotRestored: another process may have released it, so neither of the handles
// restores the lock.
func TestSharedLockIsNotRestored(t *testing.T) {
	onCluster(t, func(t *testing.T, n *cluster) {
		l, _ := n.locker(t, redlatch.WithoutRenewal())
		lock := mustLock(t, l, "k")
		n.requireOn(t, "k", 5)
		adopted, err := l.Adopt(t.Context(), "k", lock.Token())
		require.NoError(t, err)
		n.empty(t, 0)
		for _, handle := range []*redlatch.Lock{lock, adopted} {
			require.NoError(t, handle.Extend(t.Context(), time.Hour))
			n.requireOn(t, "k", 4)
		}
		require.NoError(t, adopted.Unlock(t.Context()))
		n.requireOn(t, "k", 0)
		requireOnly(t, lock.Extend(t.Context(), time.Hour), redlatch.ErrLost)
		n.requireOn(t, "k", 0)
	})
}

// TestRestoredNodesAreNoProof: the lock was released by force, and another owner had it in between.
// An extension restores it on two nodes and gets no answer from the others. So do later ones, which
// find it on these two, and say in the end that it is lost.
func TestRestoredNodesAreNoProof(t *testing.T) {
	onCluster(t, func(t *testing.T, n *cluster) {
		l, links := n.locker(t, redlatch.WithoutRenewal(), redlatch.WithOpTimeout(time.Second))
		lock := mustLock(t, l, "k", redlatch.WithTTL(time.Hour))
		n.requireOn(t, "k", 5)
		n.empty(t, 0, 1, 2, 3, 4)
		for _, link := range links[2:] {
			link.refuse()
		}
		requireOnly(t, lock.Extend(t.Context(), time.Hour), redlatch.ErrNoQuorum)
		n.requireOn(t, "k", 2)
		for _, link := range links[2:] {
			link.heal()
		}
		requireOnly(t, lock.Extend(t.Context(), time.Hour), redlatch.ErrLost)
		n.requireOn(t, "k", 0)
	})
}

// TestRestoreThatComesTooLateDoesNothing: an extension comes to an emptied node when its timeout
// has passed, and the release of the lock with it.
func TestRestoreThatComesTooLateDoesNothing(t *testing.T) {
	onCluster(t, func(t *testing.T, n *cluster) {
		l, links := n.locker(t, redlatch.WithoutRenewal(), redlatch.WithOpTimeout(time.Second))
		lock := mustLock(t, l, "k")
		n.requireOn(t, "k", 5)
		require.NoError(t, lock.Extend(t.Context(), time.Minute)) // the script is loaded
		require.NoError(t, n.direct[0].FlushAll(t.Context()).Err())
		links[0].set(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			time.Sleep(4 * time.Second)
			return next(context.WithoutCancel(ctx), cmd)
		})
		require.NoError(t, lock.Extend(t.Context(), time.Minute))
		links[0].heal()
		require.NoError(t, lock.Unlock(t.Context()))
		time.Sleep(8 * time.Second)
		n.requireOn(t, "k", 0)
	})
}

// TestTwoClientsOfOneServerAreRefused: two votes of one server never make a lock. Clients with one
// address are clients of one server, whatever database they use. The options of failover clients
// have no address, so nothing says that they are the same.
func TestTwoClientsOfOneServerAreRefused(t *testing.T) {
	t.Parallel()
	client := func(addr string, db int) *redis.Client {
		return locktest.Closing(t, redis.NewClient(&redis.Options{Addr: addr, DB: db}))
	}
	first, second := client("127.0.0.1:1", 0), client("127.0.0.1:2", 0)
	ring := locktest.Closing(t, redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": "127.0.0.1:3", "two": "127.0.0.1:4"}}))
	masters := func(addrs ...string) redis.UniversalClient {
		return locktest.Closing(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs}))
	}
	for name, clients := range map[string][]redis.UniversalClient{
		"one client twice":        {first, second, first},
		"another client":          {first, second, client("127.0.0.1:1", 0)},
		"another database":        {first, second, client("127.0.0.1:1", 1)},
		"in a struct":             {first, second, struct{ *redis.Client }{client("127.0.0.1:1", 0)}},
		"a ring and its shard":    {ring, second, client("127.0.0.1:4", 0)},
		"one ring in two clients": {ring, second, struct{ *redis.Ring }{ring}},
		"masters of one cluster":  {masters("127.0.0.1:5", "127.0.0.1:6"), second, masters("127.0.0.1:6", "127.0.0.1:7")},
	} {
		_, err := redlatch.NewRedlock(clients)
		requireOnly(t, err, redlatch.ErrInvalid, name)
		require.ErrorContains(t, err, "nodes 0 and 2 are the same server", name)
	}
	_, err := redlatch.NewRedlock(nil)
	requireOnly(t, err, redlatch.ErrInvalid)
	var clients []redis.UniversalClient
	for _, master := range []string{"one", "two"} {
		c := locktest.Closing(t, redis.NewFailoverClient(&redis.FailoverOptions{MasterName: master, SentinelAddrs: []string{"127.0.0.1:1"}}))
		clients = append(clients, c)
	}
	_, err = redlatch.NewRedlock(clients)
	require.NoError(t, err)
}

// TestOneOfManyWhoTryAtOnceIsGranted: six processes run a job at the same ticks. Their attempts
// split the votes, and are retried until each tick has exactly one run.
func TestOneOfManyWhoTryAtOnceIsGranted(t *testing.T) {
	onCluster(t, func(t *testing.T, n *cluster) {
		var lockers []redlatch.Locker
		for range 6 {
			l, links := n.locker(t)
			for _, link := range links {
				link.delay(rand.N(time.Millisecond))
			}
			lockers = append(lockers, l)
		}
		for tick := range 30 {
			jitter := []time.Duration{0, time.Millisecond, 10 * time.Millisecond}[tick%3]
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
	})
}

// TestFenceThatIsAgreedOnTooLateGrantsNothing: the nodes vote for different fences, so the counter
// of the first is raised. Its answer, which asks for more on the other node, comes when the lease
// has ended.
func TestFenceThatIsAgreedOnTooLateGrantsNothing(t *testing.T) {
	t.Parallel()
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		const counter = "{k}:fence:k"
		const ticks int64 = 1 << 44 // more than the time since 2026
		nodes := []*locktest.Site{locktest.NodeOf(t, s, 0), locktest.NodeOf(t, s, 1)}
		first, tap := locktest.Tapped(t, nodes[0])
		second, other := locktest.Tapped(t, nodes[1])
		l := made(redlatch.NewRedlock([]redis.UniversalClient{first, second}, redlatch.WithOpTimeout(4*time.Second)))
		locktest.Warm(t, l)
		for i, node := range nodes {
			require.NoError(t, node.Direct.Set(t.Context(), counter, ticks+1000*int64(i), 0).Err())
		}
		early, slow := 0, 0
		tap.Set(func(_ context.Context, send func() error) error {
			if early++; early != 2 { // the raise
				return send()
			}
			require.NoError(t, nodes[0].Direct.Set(t.Context(), counter, ticks+5000, 0).Err())
			defer time.Sleep(700 * time.Millisecond) // of the bubble
			return send()
		})
		other.Set(func(_ context.Context, send func() error) error {
			if slow++; slow == 1 {
				time.Sleep(500 * time.Millisecond) // so its key outlives the lease
			}
			return send()
		})
		_, err := l.TryLock(t.Context(), "k", redlatch.WithTTL(time.Second))
		require.ErrorIs(t, err, redlatch.ErrLost)
		time.Sleep(time.Second)
		for _, node := range nodes {
			require.Equal(t, fmt.Sprint(ticks+5000), node.Direct.Get(t.Context(), counter).Val())
			require.Zero(t, node.Direct.Exists(t.Context(), "k").Val())
		}
	})
}

// TestSilentQuorumSaysWhatItNeeds: ctx ends a wait before any node has answered.
func TestSilentQuorumSaysWhatItNeeds(t *testing.T) {
	t.Parallel()
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		var clients []redis.UniversalClient
		for i := range 2 {
			client, tap := locktest.Tapped(t, locktest.NodeOf(t, s, i))
			tap.Late(2 * time.Second)
			clients = append(clients, client)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		l := made(redlatch.NewRedlock(clients, redlatch.WithOpTimeout(4*time.Second), redlatch.WithKeyPrefix("app:")))
		_, err := l.Lock(ctx, "k")
		require.ErrorIs(t, err, redlatch.ErrNoQuorum)
		var q *redlatch.QuorumError
		require.ErrorAs(t, err, &q)
		require.Equal(t, "k", q.Key, "as in the call")
		require.Equal(t, []int{2, 2}, []int{q.Need, len(q.Nodes)})
	})
}

// TestNodeReleasesAResentAcquireTwice: the reply to an acquire was lost, so it was sent again. The
// first send may be carried out until the timeout has passed, also after the release.
func TestNodeReleasesAResentAcquireTwice(t *testing.T) {
	t.Parallel()
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		client, tap := locktest.Tapped(t, s)
		l := made(redlatch.NewRedlock([]redis.UniversalClient{client}, redlatch.WithOpTimeout(time.Second)))
		locktest.Warm(t, l)
		lost := false
		tap.Set(func(_ context.Context, send func() error) error {
			if err := send(); lost {
				return err
			}
			lost = true
			return io.EOF
		})
		lock := mustLock(t, l, "k")
		token := string(lock.Token())
		require.NoError(t, lock.Unlock(t.Context()))
		require.NoError(t, s.Direct.Set(t.Context(), "k", token, time.Minute).Err(), "the first send")
		time.Sleep(time.Second + time.Millisecond)
		require.Zero(t, s.Direct.Exists(t.Context(), "k").Val())
	})
}

// TestSilentNodeIsNotWaitedForTwice: two attempts that wait for it would keep each other out. Here
// a stranger has a vote, and the node did not answer the last call, so attempts are refused at
// once, and repeated within the op timeout.
func TestSilentNodeIsNotWaitedForTwice(t *testing.T) {
	t.Parallel()
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		var clients []redis.UniversalClient
		var taps []*locktest.Tap
		for i := range 3 {
			client, tap := locktest.Tapped(t, locktest.NodeOf(t, s, i))
			clients, taps = append(clients, client), append(taps, tap)
		}
		l := made(redlatch.NewRedlock(clients, redlatch.WithOpTimeout(time.Second)))
		locktest.Warm(t, l)
		time.Sleep(time.Millisecond) // of the bubble: the answers are older than the next call
		taps[2].Late(5 * time.Second)
		mustLock(t, l, "other", redlatch.WithoutRenewal())
		time.Sleep(1100 * time.Millisecond) // of the bubble
		require.NoError(t, locktest.NodeOf(t, s, 1).Direct.Set(t.Context(), "k", "stranger", time.Hour).Err())
		before := taps[0].Sent.Load()
		_, err := l.TryLock(t.Context(), "k")
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		require.Greater(t, taps[0].Sent.Load()-before, int64(4), "acquires and releases")
		taps[2].Late(0) // so that releases are answered, and none goes on
	})
}

// TestRestIsNoOutage: a process leaves a key alone that others want. A caller for whom one round
// trip is left asks for it all the same.
func TestRestIsNoOutage(t *testing.T) {
	onCluster(t, func(t *testing.T, n *cluster) {
		opts := []redlatch.Option{redlatch.WithPollInterval(8*time.Millisecond, time.Second), redlatch.WithOpTimeout(time.Second)}
		l, links := n.locker(t, opts...)
		other, _ := n.locker(t, opts...)
		for _, link := range links {
			link.delay(80 * time.Millisecond)
		}
		for range 5 {
			require.NoError(t, granted(l.Lock(t.Context(), "k")).Unlock(t.Context()))
		}
		lock := granted(l.Lock(t.Context(), "k"))
		_, err := other.TryLock(t.Context(), "k")
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		require.NoError(t, lock.Unlock(t.Context()))
		n.requireOn(t, "k", 0)
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Millisecond)
		defer cancel()
		require.NoError(t, granted(l.Lock(ctx, "k")).Unlock(t.Context()))
	})
}

// TestProcessDoesNotLeaveAKeyToItself: on a network where an acquire may overtake the release of the
// lock before, some nodes refuse it. Nobody else wants the key, so the only caller does not pause.
func TestProcessDoesNotLeaveAKeyToItself(t *testing.T) {
	onCluster(t, func(t *testing.T, n *cluster) {
		const jitter = 4 * time.Millisecond
		l, links := n.locker(t, redlatch.WithPollInterval(time.Second, time.Second))
		locktest.Warm(t, l)
		random := rand.New(rand.NewPCG(1, 1))
		var mu sync.Mutex
		for _, link := range links {
			link.set(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
				mu.Lock()
				d := time.Duration(random.Int64N(int64(jitter)))
				mu.Unlock()
				time.Sleep(d)
				return next(ctx, cmd)
			})
		}
		paused := 0
		for range 60 {
			start := time.Now()
			require.NoError(t, granted(l.Lock(t.Context(), "k")).Unlock(t.Context()))
			if time.Since(start) > 4*jitter { // the releases of two locks before have reached too few nodes
				paused++
			}
		}
		require.Less(t, paused, 6)
	})
}

// TestRefusalOfItsOwnHidesNobody: a process leaves a key to another that wants it, also if a caller
// of its own was refused after that. If only that one was, it does not.
func TestRefusalOfItsOwnHidesNobody(t *testing.T) {
	t.Parallel()
	for _, wanted := range []bool{true, false} {
		t.Run(fmt.Sprint(wanted), func(t *testing.T) {
			onCluster(t, func(t *testing.T, n *cluster) {
				const pause = 200 * time.Millisecond
				l, _ := n.locker(t, redlatch.WithPollInterval(pause, pause))
				other, _ := n.locker(t)
				lock := mustLock(t, l, "k")
				refused := []redlatch.Locker{l}
				if wanted {
					refused = []redlatch.Locker{l, other, l}
				}
				for _, l := range refused {
					_, err := l.TryLock(t.Context(), "k")
					require.ErrorIs(t, err, redlatch.ErrNotAcquired)
					synctest.Wait() // all nodes have refused it
				}
				require.NoError(t, lock.Unlock(t.Context()))
				n.requireOn(t, "k", 0)
				start := time.Now()
				granted(l.Lock(t.Context(), "k"))
				require.Equal(t, wanted, time.Since(start) >= pause/2)
			})
		})
	}
}
