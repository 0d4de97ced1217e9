package behavior_test

import (
	"context"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/faultproxy"
	"github.com/redlatch/redlatch/internal/testing/locktest"
)

// proxied returns a Locker behind a proxy, with a client that retries so often. Its scripts are
// loaded.
func (w *world) proxied(t *testing.T, retries int, opts ...redlatch.Option) (redlatch.Locker, *faultproxy.Proxy) {
	t.Helper()
	p := faultproxy.New(t, w.Options.Network, w.Options.Addr)
	o := p.Options()
	o.MaxRetries = retries
	client := locktest.Closing(t, redis.NewClient(o))
	l := w.over(t, client, opts...)
	warm := mustLock(t, l, "warm", longTTL)
	require.NoError(t, warm.Extend(t.Context(), time.Second))
	adopted, err := l.Adopt(t.Context(), "warm", warm.Token())
	require.NoError(t, err)
	require.NoError(t, adopted.Unlock(t.Context()))
	return l, p
}

// TestResentAcquireIsReleasedTwice: the reply to an acquire was lost, so it was sent again. The
// first send may be carried out until the timeout has passed, so the token is released once more
// then. The second release does not overtake the first, even if that is slow: the first would find
// the key gone, and Unlock would report a loss.
func TestResentAcquireIsReleasedTwice(t *testing.T) {
	onEvery(t, map[string]maker{"SetNXPX": redlatch.NewSetNXPX}, func(t *testing.T, w *world) {
		for _, slow := range []bool{false, true} {
			l, link := w.linked(t, redlatch.WithOpTimeout(200*time.Millisecond))
			require.NoError(t, mustLock(t, l, "warm").Unlock(t.Context()))
			link.lose(1)
			lock := mustLock(t, l, "k")
			token := string(lock.Token())
			time.Sleep(60 * time.Millisecond)
			var sends atomic.Int64
			link.set(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
				if cmd.Args()[1] == "return 0" { // it opens a connection for later calls
					return next(ctx, cmd)
				}
				if sends.Add(1) == 1 && slow {
					time.Sleep(170 * time.Millisecond)
				}
				return next(ctx, cmd)
			})
			require.NoError(t, lock.Unlock(t.Context()))
			if !slow {
				require.NoError(t, w.Direct.SetArgs(t.Context(), "k", token, redis.SetArgs{Mode: "NX", TTL: time.Minute}).Err(), "the first send")
			}
			time.Sleep(time.Second)
			require.Zero(t, w.Direct.Exists(t.Context(), "k").Val())
			require.EqualValues(t, 2, sends.Load())
		}
	})
}

// TestLostReplyIsNotLostOwnership: a command whose reply is lost, or that is lost itself, succeeds
// as if the reply had arrived, whether or not go-redis itself retries commands.
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

// TestUnknownOutcomeLeavesNoKey: every reply to an attempt is lost, or its command or its reply
// comes only after the attempt has ended, or never. The attempt fails, and the key that it may have
// acquired is released. The same holds for a release without a reply.
func TestUnknownOutcomeLeavesNoKey(t *testing.T) {
	onEvery(t, everyStrategy, func(t *testing.T, w *world) {
		l, link := w.linked(t, longTTL, redlatch.WithoutRenewal(), redlatch.WithOpTimeout(400*time.Millisecond))
		require.NoError(t, mustLock(t, l, "warm").Unlock(t.Context()))
		for what, inject := range map[string]func(){
			"all replies are lost":   func() { link.lose(1000) },
			"the command is lost":    link.hang,
			"the command comes late": func() { link.delay(2 * time.Second) },
			"the reply comes late":   func() { link.delay(600 * time.Millisecond) },
			"the reply is lost, and Redis cannot be reached": func() {
				link.set(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
					_ = next(ctx, cmd)
					link.refuse()
					cmd.SetErr(io.EOF)
					return io.EOF
				})
			},
		} {
			inject()
			_, err := l.TryLock(t.Context(), "k")
			requireOnly(t, err, redlatch.ErrUnavailable, what)
			link.heal()
			gone(t, w.Direct, "k")

			lock := mustLock(t, l, "released")
			inject()
			requireOnly(t, lock.Unlock(t.Context()), redlatch.ErrUnavailable, what)
			require.ErrorIs(t, lock.Err(), redlatch.ErrReleased)
			link.heal()
			gone(t, w.Direct, "released")
			time.Sleep(10 * time.Second)
			onlyFences(t, w.Direct)
		}
	})
}

// TestReleaseOfALostLockIsNoSuccess: if the retry of a release finds nothing, Unlock succeeds only
// if the first send may have been carried out. Here the first send cannot connect, or Redis refuses
// it.
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
