package behavior_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/locktest"
)

// TestSickMinorityCostsNoTime: nodes of a minority are slow, hang, refuse connections or are full.
// No call waits for them, and no lock is left when they return. Hooks.Trouble names each node that
// fails, and what it answered.
func TestSickMinorityCostsNoTime(t *testing.T) {
	onCluster(t, func(t *testing.T, n *cluster) {
		for name, c := range map[string]struct {
			inject func(l *link)
			cause  redlatch.Cause
		}{
			"slow":    {func(l *link) { l.delay(50 * time.Millisecond) }, ""},
			"hung":    {(*link).hang, "timeout"},
			"refused": {(*link).refuse, "connection"},
			"full":    {func(l *link) { l.answer("OOM command not allowed when used memory > 'maxmemory'.") }, "OOM"},
		} {
			const sick = 2
			var troubles heard
			l, links := n.locker(t, redlatch.WithHooks(redlatch.Hooks{Trouble: troubles.add}))
			require.NoError(t, mustLock(t, l, "warm").Unlock(t.Context()))
			time.Sleep(time.Second) // the slower nodes have released it too
			for _, link := range links[:sick] {
				c.inject(link)
			}
			begin := time.Now()
			for i := range 5 {
				lock, err := l.Lock(t.Context(), fmt.Sprint("k", i))
				require.NoError(t, err)
				require.NoError(t, lock.Extend(t.Context(), 2*time.Hour))
				st, err := l.Inspect(t.Context(), lock.Key())
				require.NoError(t, err)
				require.Equal(t, lock.Token(), st.Token)
				require.NoError(t, lock.Unlock(t.Context()))
			}
			require.Less(t, time.Since(begin), 20*time.Millisecond, name)
			time.Sleep(time.Minute)
			named := make(map[string]bool)
			for _, e := range troubles.all() {
				named[e.Node] = true
				require.Equal(t, []any{c.cause, redlatch.StrategyRedlock}, []any{e.Cause, e.Strategy}, name)
				require.ErrorIs(t, e.Err, redlatch.ErrUnavailable)
			}
			if c.cause != "" {
				require.Len(t, named, sick)
			}
			for i, link := range links[:sick] {
				require.Equal(t, c.cause != "", named[n.addr(i)])
				link.heal()
			}
			onlyFences(t, n.direct...)
		}
	})
}

// TestHungMajorityIsNoQuorum: calls fail in time, and silence keeps the lease. No lock is left when
// the nodes return. The error names all nodes that failed.
func TestHungMajorityIsNoQuorum(t *testing.T) {
	onCluster(t, func(t *testing.T, n *cluster) {
		const timeout = 500 * time.Millisecond
		l, links := n.locker(t, redlatch.WithOpTimeout(timeout))
		held := mustLock(t, l, "held")
		links[0].refuse()
		links[1].refuse()
		links[2].hang()
		for what, f := range map[string]func() error{
			"TryLock": func() error { _, err := l.TryLock(t.Context(), "k"); return err },
			"Adopt":   func() error { _, err := l.Adopt(t.Context(), "k", "token"); return err },
			"Inspect": func() error { _, err := l.Inspect(t.Context(), "k"); return err },
			"Extend":  func() error { return held.Extend(t.Context(), 2*time.Hour) },
		} {
			begin := time.Now()
			err := f()
			requireOnly(t, err, redlatch.ErrNoQuorum, what)
			require.LessOrEqual(t, time.Since(begin), 2*timeout, what)
			for i := range 3 {
				require.ErrorContains(t, err, n.addr(i), what)
			}
		}
		require.NoError(t, held.Err(), "silence keeps the lease")
		require.ErrorIs(t, held.Unlock(t.Context()), redlatch.ErrNoQuorum)
		require.ErrorIs(t, held.Err(), redlatch.ErrReleased)
		for _, link := range links {
			link.heal()
		}
		onlyFences(t, n.direct...)
	})
}

// TestQuorumLivesWithAMinorityThatRetryingCannotFix: waits go on while the other nodes are a
// quorum, and end when they are none.
func TestQuorumLivesWithAMinorityThatRetryingCannotFix(t *testing.T) {
	onCluster(t, func(t *testing.T, n *cluster) {
		l, links := n.locker(t)
		holder := mustLock(t, locktest.Redlock(t, n.direct), "k")
		links[0].answer("ERR bad lua script")
		links[1].answer("WRONGTYPE")
		got := make(chan *redlatch.Lock)
		locking(t, got, l, "k")
		time.Sleep(time.Second)
		require.NoError(t, holder.Unlock(t.Context()))
		require.NoError(t, (<-got).Unlock(t.Context()))
		next := mustLock(t, locktest.Redlock(t, n.direct), "k")
		links[2].answer("ERR bad lua script")
		_, err := l.Lock(t.Context(), "k")
		require.ErrorIs(t, err, redlatch.ErrNoQuorum)
		require.NoError(t, next.Unlock(t.Context()))
	})
}

// TestNodeIsSentNoReleaseOfWhatItHasNot: a node that has surely not granted a lock gets no release
// of it, however the attempt and the lock end.
func TestNodeIsSentNoReleaseOfWhatItHasNot(t *testing.T) {
	onCluster(t, func(t *testing.T, n *cluster) {
		for name, fails := range map[string]error{
			"a server that is dead": &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED},
			"a server that loads":   refusal("LOADING Redis is loading the dataset in memory"),
			"another owner":         nil,
		} {
			l, links := n.locker(t)
			require.NoError(t, mustLock(t, l, "warm").Unlock(t.Context()))
			time.Sleep(time.Second)
			var acquires, releases atomic.Int64
			for node, link := range links[:2] {
				link.set(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
					switch args := cmd.Args(); {
					case !strings.HasPrefix(cmd.Name(), "eval"), args[1] == "return 0":
					case args[2] == 3:
						acquires.Add(1)
					default:
						releases.Add(1)
					}
					if fails != nil {
						return fails
					}
					return next(ctx, cmd)
				})
				for i := range 6 {
					if fails == nil {
						require.NoError(t, n.servers[node].Set(fmt.Sprint("k", i), "other"))
					}
				}
			}
			for i := range 3 {
				require.NoError(t, mustLock(t, l, fmt.Sprint("k", i)).Unlock(t.Context()), name)
				lock := mustLock(t, l, fmt.Sprint("k", i+3))
				time.Sleep(2 * time.Second) // the nodes have answered, or have not within the timeout
				require.NoError(t, lock.Unlock(t.Context()), name)
			}
			time.Sleep(time.Minute)
			require.Positive(t, acquires.Load(), name)
			require.Zero(t, releases.Load(), name)
			lock := mustLock(t, l, "k0")
			n.empty(t, 2, 3, 4)
			err, q := lock.Unlock(t.Context()), new(redlatch.QuorumError)
			require.ErrorIs(t, err, redlatch.ErrLost, name)
			require.ErrorAs(t, err, &q)
			require.NotContains(t, q.Nodes, nil, "none of them is done")
			n.empty(t, 0, 1)
		}
	})
}
