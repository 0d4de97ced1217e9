package redlatch

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/faultproxy"
	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/redistest"
)

// oneNode returns a node with an empty server behind it.
func oneNode(t *testing.T) (*miniredis.Miniredis, *redis.Client, *node.Node) {
	t.Helper()
	m := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: m.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	return m, client, node.New(client)
}

// mine returns the lock on k with the token "mine".
func mine() target {
	at, _ := (&redlock{}).place("", "k")
	return target{place: at, token: "mine", timeout: time.Minute}
}

// TestRaiseNeedsTheLock: a node where the token does not hold the key refuses to raise its counter.
func TestRaiseNeedsTheLock(t *testing.T) {
	m, _, n := oneNode(t)
	raise := func(fence uint64) (uint64, error) {
		lock := mine()
		return readRaise(n.Do(t.Context(), timed(raiseCall(&lock, fence))))
	}
	for _, holder := range []string{"", "another"} {
		if holder != "" {
			require.NoError(t, m.Set("k", holder))
		}
		_, err := raise(70)
		require.ErrorIs(t, err, ErrLost)
		require.False(t, m.Exists("{k}:fence:k"))
	}
	require.NoError(t, m.Set("k", "mine"))
	for _, fence := range []uint64{70, 60} {
		counter, err := raise(fence)
		require.NoError(t, err)
		require.Equal(t, uint64(70), counter, "a higher counter is returned, and not lowered")
	}
}

// TestHealEndsWithTheLease is rule 11 on a quorum: nothing is healed once the lease has ended, or where
// somebody else has the key.
func TestHealEndsWithTheLease(t *testing.T) {
	m, _, n := oneNode(t)
	e := scriptedLocker(t, &scripted{})
	lock := granted(t, e, WithTTL(time.Minute))
	r := &redlock{} // without a node
	p := healOf(lock)
	p.target, p.fence = mine(), 70
	require.NoError(t, m.Set("k", "another"))
	_, err := readHeal(n.Do(t.Context(), timed(healCall(p, p.ttl))))
	require.ErrorIs(t, err, ErrNotAcquired)
	m.Del("k")
	_, err = readHeal(n.Do(t.Context(), timed(healCall(p, p.ttl))))
	require.NoError(t, err)
	m.CheckGet(t, "k", "mine")
	m.CheckGet(t, "{k}:fence:k", "70")
	require.Positive(t, m.TTL("k"))

	require.Panics(t, func() { r.healOn(t.Context(), 0, p) })
	require.NoError(t, lock.Unlock(t.Context()))
	require.NotPanics(t, func() { r.healOn(t.Context(), 0, p) }, "nothing is sent to a node")
}

// TestNoHealFollowsTheReleaseOfUnlock is rule 11 on a quorum: Unlock begins while a node is being healed.
func TestNoHealFollowsTheReleaseOfUnlock(t *testing.T) {
	t.Parallel()
	m, client, _ := oneNode(t)
	l, err := NewRedlock([]redis.UniversalClient{client}, WithTTL(time.Hour))
	require.NoError(t, err)
	require.NoError(t, granted(t, l).Unlock(t.Context()), "the scripts are loaded")
	require.NoError(t, client.ScriptLoad(t.Context(), source("quorum_heal.lua")).Err())
	lock := granted(t, l)
	m.Del("k")
	unlocked := make(chan error, 1)
	p := healOf(lock)
	p.whileHeld = func(post func(left time.Duration)) {
		lock.lease.whileHeld(func(left time.Duration) {
			go func() { unlocked <- lock.Unlock(context.Background()) }()
			select {
			case err := <-unlocked:
				unlocked <- err
			case <-time.After(200 * time.Millisecond): // Unlock waits for the heal to be posted
			}
			post(left)
		})
	}
	l.(*engine).strategy.(*redlock).healOn(t.Context(), 0, p)
	require.NoError(t, <-unlocked, "it has released what was healed")
	require.False(t, m.Exists("k"))
}

// TestHealThatIsOvertakenIsReleased is rule 4 on a quorum: Unlock waits no longer than half of its timeout for a
// heal, which is carried out after its release, and in time.
func TestHealThatIsOvertakenIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, client := bubbleRedis(t)
		l, err := NewRedlock([]redis.UniversalClient{client}, WithTTL(time.Hour), WithOpTimeout(4*time.Second))
		require.NoError(t, err)
		require.NoError(t, granted(t, l).Unlock(t.Context()), "the scripts are loaded")
		require.NoError(t, client.ScriptLoad(t.Context(), source("quorum_heal.lua")).Err())
		lock := granted(t, l)
		m.Del("k")
		var scripts atomic.Int64
		client.AddHook(redistest.OnProcess(func(next redis.ProcessHook) redis.ProcessHook {
			return func(ctx context.Context, cmd redis.Cmder) error {
				if scripts.Add(1) == 1 {
					time.Sleep(3 * time.Second) // of the bubble
				}
				return next(ctx, cmd)
			}
		}))
		l.(*engine).strategy.(*redlock).healOn(t.Context(), 0, healOf(lock))
		require.ErrorIs(t, lock.Unlock(t.Context()), ErrLost)
		require.Equal(t, int64(2), scripts.Load())
		time.Sleep(2 * time.Second)
		require.False(t, m.Exists("k"))
		require.Equal(t, int64(3), scripts.Load(), "the heal was carried out, and released")
	})
}

// timed returns c with a timeout.
func timed(c *node.Call) *node.Call {
	c.Timeout = time.Minute
	return c
}

// TestReleaseFollowsItsAcquireOnAQuorum is rule 4: a failed attempt is released only after its acquire has returned.
// If the acquire ran after the release, nobody would release its vote.
func TestReleaseFollowsItsAcquireOnAQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, client := bubbleRedis(t)
		l, err := NewRedlock([]redis.UniversalClient{client}, WithOpTimeout(time.Minute))
		require.NoError(t, err)
		require.NoError(t, granted(t, l).Unlock(t.Context()), "the scripts are loaded")
		var scripts atomic.Int64
		underWay, goesOn := make(chan struct{}), make(chan struct{})
		client.AddHook(redistest.OnProcess(func(next redis.ProcessHook) redis.ProcessHook {
			return func(ctx context.Context, cmd redis.Cmder) error {
				if scripts.Add(1) == 1 {
					close(underWay)
					<-goesOn
				}
				return next(context.WithoutCancel(ctx), cmd)
			}
		}))
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-underWay; cancel() }()
		_, err = l.TryLock(ctx, "k")
		require.ErrorIs(t, err, context.Canceled)
		synctest.Wait()
		close(goesOn)
		synctest.Wait()
		require.True(t, m.Exists("{k}:fence:k"), "the acquire has run")
		require.False(t, m.Exists("k"))
	})
}

// TestLateVoteOfAChosenTokenIsLeft is rule 4: a late vote for a chosen token is not released, since the caller may
// want to recover the lock that the token already holds.
func TestLateVoteOfAChosenTokenIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, client := bubbleRedis(t)
		l, err := NewRedlock([]redis.UniversalClient{client}, WithOpTimeout(time.Second))
		require.NoError(t, err)
		require.NoError(t, granted(t, l).Unlock(t.Context()), "the scripts are loaded")
		var scripts atomic.Int64
		client.AddHook(redistest.OnProcess(func(next redis.ProcessHook) redis.ProcessHook {
			return func(ctx context.Context, cmd redis.Cmder) error {
				if scripts.Add(1) == 1 {
					<-ctx.Done()
					return gaveUpReading.Err
				}
				return next(ctx, cmd)
			}
		}))
		require.NoError(t, m.Set("k", "job-7"))
		_, err = l.TryLock(t.Context(), "k", WithToken("job-7"))
		require.ErrorIs(t, err, ErrNoQuorum)
		time.Sleep(time.Minute)
		m.CheckGet(t, "k", "job-7")
	})
}

// TestLateVoteOfALostLockIsReleased is rule 4: an acquire that nobody waited for runs only after the lease has
// ended. Its vote is released.
func TestLateVoteOfALostLockIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var servers []*miniredis.Miniredis
		var clients []redis.UniversalClient
		goesOn := make(chan struct{})
		for i := range 3 {
			m, client := bubbleRedis(t)
			servers, clients = append(servers, m), append(clients, client)
			if i == 2 {
				var commands atomic.Int64
				client.AddHook(redistest.OnProcess(func(next redis.ProcessHook) redis.ProcessHook {
					return func(ctx context.Context, cmd redis.Cmder) error {
						if cmd.Name() == "evalsha" && commands.Add(1) == 1 {
							<-goesOn
						}
						return next(ctx, cmd)
					}
				}))
			}
		}
		l, err := NewRedlock(clients, WithOpTimeout(time.Hour), WithTTL(time.Hour), WithoutRenewal())
		require.NoError(t, err)
		lock := granted(t, l)
		for _, m := range servers[:2] {
			m.Del("k")
		}
		require.ErrorIs(t, lock.Extend(t.Context(), time.Hour), ErrLost)
		require.False(t, servers[2].Exists("k"))
		close(goesOn)
		synctest.Wait()
		require.True(t, servers[2].Exists("{k}:fence:k"), "the acquire has run")
		require.False(t, servers[2].Exists("k"))
	})
}

// TestSendThatArrivesAfterUnlockLeavesNoKey is rule 4: a call to a silent server is stuck on one connection, and is
// sent again on another, which works. The lock is unlocked. Only then the first send is carried out.
func TestSendThatArrivesAfterUnlockLeavesNoKey(t *testing.T) {
	t.Parallel()
	calls := map[string]func(t *testing.T, f *stuck, l Locker, silence func()) *Lock{
		"acquire": func(t *testing.T, _ *stuck, l Locker, silence func()) *Lock {
			silence()
			return granted(t, l)
		},
		"extension": func(t *testing.T, f *stuck, l Locker, silence func()) *Lock {
			lock := granted(t, l)
			f.have(t, len(f.direct))
			silence()
			require.NoError(t, lock.Extend(t.Context(), 2*time.Hour))
			return lock
		},
	}
	strategies := map[string]struct {
		nodes, sick int
		made        func(clients []redis.UniversalClient, opts ...Option) (Locker, error)
	}{
		"SetNXPX": {1, 1, func(c []redis.UniversalClient, opts ...Option) (Locker, error) { return NewSetNXPX(c[0], opts...) }},
		"Semaphore": {1, 1, func(c []redis.UniversalClient, opts ...Option) (Locker, error) {
			return NewSemaphore(c[0], 1, opts...)
		}},
		"LegacySetNX": {1, 1, func(c []redis.UniversalClient, opts ...Option) (Locker, error) {
			return NewLegacySetNX(c[0], opts...)
		}},
		"Redlock on one node":                 {1, 1, NewRedlock},
		"Redlock on five, one of them sick":   {5, 1, NewRedlock},
		"Redlock on five, all of them silent": {5, 5, NewRedlock},
	}
	for name, s := range strategies {
		for what, call := range calls {
			t.Run(name+", "+what, func(t *testing.T) {
				t.Parallel()
				f := newStuck(t, s.nodes, s.sick)
				l, err := s.made(f.clients, WithTTL(time.Hour), WithoutRenewal(), WithOpTimeout(4*time.Second))
				require.NoError(t, err)
				f.arrivesAfterUnlock(t, l.(*engine), func(silence func()) *Lock { return call(t, f, l, silence) })
			})
		}
	}
}

// TestHealThatArrivesAfterUnlockLeavesNoKey is rule 4, as [TestSendThatArrivesAfterUnlockLeavesNoKey].
func TestHealThatArrivesAfterUnlockLeavesNoKey(t *testing.T) {
	t.Parallel()
	f := newStuck(t, 5, 1)
	l, err := NewRedlock(f.clients, WithTTL(time.Hour), WithoutRenewal(), WithOpTimeout(4*time.Second))
	require.NoError(t, err)
	r := l.(*engine).strategy.(*redlock)
	f.arrivesAfterUnlock(t, l.(*engine), func(silence func()) *Lock {
		lock := granted(t, l)
		f.have(t, 5)
		require.NoError(t, f.direct[0].ScriptLoad(t.Context(), source("quorum_heal.lua")).Err())
		require.NoError(t, f.direct[0].Del(t.Context(), "k").Err())
		silence()
		r.healOn(t.Context(), 0, healOf(lock))
		return lock
	})
}

// healOf returns what an extension of lock passes on to heal a node.
func healOf(lock *Lock) *leaseParams {
	l := lock.lease
	return &leaseParams{target: l.params.target, ttl: time.Hour, fence: l.fence, state: &l.state, whileHeld: l.whileHeld}
}

// stuck are servers whose clients have idle connections. The first ones are sick: their connections can go silent.
type stuck struct {
	sick    int
	direct  []*redis.Client
	proxies []*faultproxy.Proxy
	clients []redis.UniversalClient // through the proxies
}

func newStuck(t *testing.T, nodes, sick int) *stuck {
	t.Helper()
	f := &stuck{sick: sick}
	for i := range nodes {
		s := redistest.Start(t)
		f.direct = append(f.direct, s.Client(t))
		f.proxies = append(f.proxies, faultproxy.New(t, s.Network(), s.Addr()))
		f.clients = append(f.clients, f.proxies[i].Client(t))
	}
	return f
}

// arrivesAfterUnlock makes a call that is sent to sick servers when silence has been called, and whose first send to each
// of them is stuck. It unlocks the lock that the call returns, and lets the stuck sends arrive.
func (f *stuck) arrivesAfterUnlock(t *testing.T, l *engine, call func(silence func()) *Lock) {
	t.Helper()
	warm := granted(t, l) // the scripts are loaded
	require.NoError(t, warm.Extend(t.Context(), 2*time.Hour))
	f.have(t, len(f.direct))
	require.NoError(t, warm.Unlock(t.Context()))
	f.have(t, 0)

	lock := call(func() { f.silence(t, l) })
	f.have(t, len(f.direct))
	require.NoError(t, lock.Unlock(t.Context()))
	f.have(t, 0)
	for i, p := range f.proxies[:f.sick] {
		before := f.scriptsRun(t, i)
		p.Heal()
		soon(t, "the stuck send arrives", func() bool { return f.scriptsRun(t, i) > before })
	}
	f.have(t, 0)
}

// silence leaves two idle connections to each sick server, and makes them silent. The node notices that on the first.
func (f *stuck) silence(t *testing.T, l *engine) {
	t.Helper()
	for i, p := range f.proxies[:f.sick] {
		conns := []*redis.Conn{f.clients[i].(*redis.Client).Conn(), f.clients[i].(*redis.Client).Conn()}
		for _, c := range conns {
			require.NoError(t, c.Ping(t.Context()).Err())
		}
		for _, c := range conns {
			require.NoError(t, c.Close())
		}
		p.SilenceOpen()
		n := nodesOf(l)[i]
		ping := node.Command("ping")
		ping.Timeout = 50 * time.Millisecond
		require.Error(t, n.Do(t.Context(), ping).Err)
		require.True(t, n.Silent())
	}
}

func nodesOf(l *engine) []*node.Node {
	switch s := l.strategy.(type) {
	case *setNXPX:
		return []*node.Node{s.node}
	case *semaphore:
		return []*node.Node{s.node}
	case *legacySetNX:
		return []*node.Node{s.node}
	}
	return l.strategy.(*redlock).nodes
}

// have waits until the key is on that many nodes.
func (f *stuck) have(t *testing.T, nodes int) {
	t.Helper()
	soon(t, fmt.Sprint("the key is on ", nodes, " nodes"), func() bool {
		have := 0
		for _, c := range f.direct {
			have += int(c.Exists(t.Context(), "k").Val())
		}
		return have == nodes
	})
}

// scriptsRun returns how many scripts a server has run by their SHA-1.
func (f *stuck) scriptsRun(t *testing.T, i int) (n int) {
	t.Helper()
	_, stats, _ := strings.Cut(f.direct[i].Info(t.Context(), "commandstats").Val(), "cmdstat_evalsha:")
	_, _ = fmt.Sscanf(stats, "calls=%d", &n)
	return n
}

func soon(t *testing.T, what string, f func() bool) {
	t.Helper()
	require.Eventually(t, f, 10*time.Second, time.Millisecond, what)
}
