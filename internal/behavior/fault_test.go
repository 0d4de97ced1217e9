package behavior_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/faultproxy"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// proxied returns a Locker behind a proxy, with a client that retries so often. Its scripts are loaded.
func (w *world) proxied(t *testing.T, retries int, opts ...redlatch.Option) (redlatch.Locker, *faultproxy.Proxy) {
	t.Helper()
	p := faultproxy.New(t, w.Options.Network, w.Options.Addr)
	o := p.Options()
	o.MaxRetries = retries
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	l := w.over(t, client, opts...)
	warm := mustLock(t, l, "warm", longTTL)
	require.NoError(t, warm.Extend(t.Context(), time.Second))
	adopted, err := l.Adopt(t.Context(), "warm", warm.Token())
	require.NoError(t, err)
	require.NoError(t, adopted.Unlock(t.Context()))
	return l, p
}

// TestResentAcquireIsReleasedTwice: the connection broke after an acquire was sent, so it was sent again. The first send may be
// carried out until the timeout has passed, so the token is released once more then.
func TestResentAcquireIsReleasedTwice(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		client, lost := s.Client(t), new(atomic.Bool)
		client.AddHook(redistest.OnProcess(func(next redis.ProcessHook) redis.ProcessHook {
			return func(ctx context.Context, cmd redis.Cmder) error {
				err := next(ctx, cmd)
				if lost.CompareAndSwap(false, true) {
					err = io.EOF
					cmd.SetErr(err)
				}
				return err
			}
		}))
		l, err := redlatch.NewSetNXPX(client, redlatch.WithOpTimeout(time.Second))
		require.NoError(t, err)
		lock, err := l.TryLock(t.Context(), "k")
		require.NoError(t, err)
		token := lock.Token()
		require.NoError(t, lock.Unlock(t.Context()))
		require.NoError(t, s.Direct.SetArgs(t.Context(), "k", token, redis.SetArgs{Mode: "NX", TTL: time.Minute}).Err(), "the first send")
		time.Sleep(time.Second + time.Millisecond)
		require.Zero(t, s.Direct.Exists(t.Context(), "k").Val())
	})
}

// TestSecondReleaseFollowsTheFirst: the release of an acquire that was sent twice is slow. The second release does not overtake it:
// the first would find the key gone, and Unlock would report a loss.
func TestSecondReleaseFollowsTheFirst(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		client, sends := s.Client(t), new(atomic.Int64)
		client.AddHook(redistest.OnProcess(func(next redis.ProcessHook) redis.ProcessHook {
			return func(ctx context.Context, cmd redis.Cmder) error {
				if !strings.HasPrefix(cmd.Name(), "eval") {
					return next(ctx, cmd)
				}
				switch sends.Add(1) {
				case 2: // the acquire, behind one that only asked for the time
					_ = next(ctx, cmd)
					cmd.SetErr(io.EOF)
					return io.EOF
				case 4:
					time.Sleep(170 * time.Millisecond)
				}
				return next(ctx, cmd)
			}
		}))
		l, err := redlatch.NewSetNXPX(client, redlatch.WithOpTimeout(200*time.Millisecond))
		require.NoError(t, err)
		lock, err := l.TryLock(t.Context(), "k")
		require.NoError(t, err)
		time.Sleep(60 * time.Millisecond)
		require.NoError(t, lock.Unlock(t.Context()))
		time.Sleep(time.Second)
		require.EqualValues(t, 6, sends.Load(), "three acquires, the release by its name and by its source, and the second one")
	})
}

// TestLostReplyIsNotLostOwnership: a command whose reply is lost, or that is lost itself, succeeds as if the reply had arrived,
// whether or not go-redis itself retries commands.
func TestLostReplyIsNotLostOwnership(t *testing.T) {
	onRedis(t, everyStrategy, func(t *testing.T, w *world) {
		for _, retries := range []int{0, -1} { // the default of go-redis, and no retries
			l, p := w.proxied(t, retries, longTTL)
			for what, lose := range map[string]func(n int, containing string){"reply": p.LoseReplies, "request": p.LoseRequests} {
				lost := p.Lost()
				lose(1, "evalsha")
				lock, err := l.TryLock(t.Context(), "k")
				require.NoError(t, err, what)
				lose(1, "evalsha")
				require.NoError(t, lock.Extend(t.Context(), 2*time.Hour), what)
				lose(1, "evalsha")
				adopted, err := l.Adopt(t.Context(), "k", lock.Token())
				require.NoError(t, err, what)
				if w.name != "LegacySetNX" {
					require.Greater(t, adopted.Fence(), lock.Fence())
				}
				st, err := l.Inspect(t.Context(), "k")
				require.NoError(t, err)
				require.Equal(t, 1, st.Holders)
				lose(1, "evalsha")
				require.NoError(t, adopted.Unlock(t.Context()), what)
				require.Equal(t, lost+4, p.Lost())
				require.Zero(t, w.Direct.Exists(t.Context(), "k").Val())
			}
		}
	})
}

// TestUnknownOutcomeLeavesNoKey: every reply to an attempt is lost, or its command comes to Redis only after the attempt has ended.
// The attempt fails, and the key that it may have acquired is released. The same holds for a release without a reply.
func TestUnknownOutcomeLeavesNoKey(t *testing.T) {
	onRedis(t, everyStrategy, func(t *testing.T, w *world) {
		brief := redlatch.WithOpTimeout(400 * time.Millisecond)
		l, p := w.proxied(t, 0, longTTL, redlatch.WithoutRenewal())
		for what, f := range map[string]struct{ inject, heal func() }{
			"all replies are lost":              {func() { p.LoseReplies(1000, "evalsha") }, func() { p.LoseReplies(0, "") }},
			"the command comes late":            {p.Silence, p.Heal},
			"held, and then its connection cut": {p.Silence, func() { p.Cut(); p.Heal() }},
		} {
			f.inject()
			_, err := l.TryLock(t.Context(), "k", brief)
			requireOnly(t, err, redlatch.ErrUnavailable, what)
			f.heal()
			gone(t, w.Direct, "k")

			lock := locktest.LockSoon(t, l, fmt.Sprint("released ", what), brief) // stale connections may cost the first attempts
			f.inject()
			requireOnly(t, lock.Unlock(t.Context()), redlatch.ErrUnavailable, what)
			require.ErrorIs(t, lock.Err(), redlatch.ErrReleased)
			f.heal()
			gone(t, w.Direct, lock.Key())
		}
		onlyFences(t, w.Direct)
	})
}

// TestReleaseOfALostLockIsNoSuccess: if the retry of a release finds nothing, Unlock succeeds only if the first send may have been
// carried out. Here the first send cannot connect, or Redis refuses it.
func TestReleaseOfALostLockIsNoSuccess(t *testing.T) {
	onEvery(t, everyStrategy, func(t *testing.T, w *world) {
		for _, failure := range []error{&net.OpError{Op: "dial", Err: syscall.EHOSTUNREACH}, refusal("LOADING Redis is loading the dataset in memory")} {
			l, link := w.linked(t, redlatch.WithoutRenewal())
			lock := mustLock(t, l, "k")
			require.NoError(t, w.Direct.Del(t.Context(), "k").Err())
			sends := 0
			link.set(func(context.Context, redis.Cmder, redis.ProcessHook) error {
				sends++
				link.heal()
				return failure
			})
			require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrLost, failure)
			require.Equal(t, 1, sends)
			require.NoError(t, w.Direct.FlushAll(t.Context()).Err())
		}
	})
}
