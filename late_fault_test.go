package redlatch

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/faultproxy"
	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/redistest"
)

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
		require.NoError(t, f.direct[0].ScriptLoad(t.Context(), healSource).Err())
		require.NoError(t, f.direct[0].Del(t.Context(), "k").Err())
		silence()
		r.healOn(t.Context(), 0, healOf(lock))
		return lock
	})
}

// healOf returns what an extension of lock passes on to heal a node.
func healOf(lock *Lock) *extendParams {
	l := lock.lease
	return &extendParams{target: l.params.target, ttl: time.Hour, fence: l.fence, state: &l.state, whileHeld: l.whileHeld}
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
