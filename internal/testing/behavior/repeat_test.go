package behavior_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/locktest"
)

// outages are ways in which Redis is of no use for some time.
var outages = map[string]func(*link){
	"silence":            (*link).hang,
	"refused":            (*link).refuse,
	"NOREPLICAS":         func(l *link) { l.answer("NOREPLICAS Not enough good replicas to write.") },
	"a proxy":            func(l *link) { l.answer("upstream failure") },
	"a rotated password": func(l *link) { l.answer("WRONGPASS invalid username-password pair or user is disabled.") },
	"a missing right":    func(l *link) { l.answer("NOPERM this user has no permissions to run the 'evalsha' command") },
	"a breaker":          func(l *link) { l.fail(errors.New("circuit open")) },
}

// fail fails each command without a reply.
func (l *link) fail(err error) {
	l.set(func(context.Context, redis.Cmder, redis.ProcessHook) error { return err })
}

// TestReleaseInAnOutageHandsNothingToThoseWhoHaveLeft: Redis is of no use when a lock is released
// for which another caller of the process waits. That caller gives up before Redis is back. The
// release, which is repeated until then, must not hand the key to the token of that caller: it
// would be held by nobody for its TTL.
func TestReleaseInAnOutageHandsNothingToThoseWhoHaveLeft(t *testing.T) {
	onEvery(t, everyStrategy, func(t *testing.T, w *world) {
		for name, begin := range outages {
			l, link := w.linked(t, longTTL, redlatch.WithoutRenewal(), redlatch.WithOpTimeout(time.Second))
			lock := mustLock(t, l, name)
			ctx, leave := context.WithCancel(t.Context())
			var callers sync.WaitGroup
			for range 2 {
				callers.Go(func() {
					_, err := l.Lock(ctx, name)
					require.ErrorIs(t, err, context.Canceled)
				})
			}
			time.Sleep(time.Second) // a look has shown both that the key is held
			begin(link)
			require.Error(t, lock.Unlock(t.Context()), name)
			time.Sleep(3 * time.Second)
			leave()
			callers.Wait()
			time.Sleep(3 * time.Second)
			link.heal()
			time.Sleep(3 * time.Second)
			require.NoError(t, mustLock(t, w.locker(t), name).Unlock(t.Context()), name)
		}
		onlyFences(t, w.Direct)
	})
}

// TestReleaseThatIsRepeatedKeepsNoLonger: Redis is of no use for most of the time for which
// UnlockAfter keeps others out. The key is free when that time has passed, counted from the call,
// and not from the end of the outage.
func TestReleaseThatIsRepeatedKeepsNoLonger(t *testing.T) {
	onEvery(t, keeping, func(t *testing.T, w *world) {
		for name, begin := range outages {
			l, link := w.linked(t, redlatch.WithTTL(time.Minute), redlatch.WithOpTimeout(time.Second))
			lock := mustLock(t, l, name)
			began := time.Now()
			begin(link)
			require.Error(t, lock.UnlockAfter(t.Context(), 16*time.Second), name)
			time.Sleep(12*time.Second - time.Since(began))
			link.heal()
			time.Sleep(3 * time.Second)
			_, err := w.locker(t).TryLock(t.Context(), name)
			requireOnly(t, err, redlatch.ErrNotAcquired, name)
			time.Sleep(17*time.Second - time.Since(began))
			require.NoError(t, mustLock(t, w.locker(t), name).Unlock(t.Context()), name)

			lock = mustLock(t, l, name)
			began = time.Now()
			begin(link)
			require.Error(t, lock.UnlockAfter(t.Context(), 4*time.Second), name)
			time.Sleep(12*time.Second - time.Since(began))
			link.heal()
			time.Sleep(2 * time.Second)
			require.NoError(t, mustLock(t, w.locker(t), name).Unlock(t.Context()), "the time had passed")
		}
	})
}

// TestUnlockAfterKeepsOthersOutBehindAnIdleClient: the client has not learned the time of Redis for
// an hour. The release learns it.
func TestUnlockAfterKeepsOthersOutBehindAnIdleClient(t *testing.T) {
	onEvery(t, keeping, func(t *testing.T, w *world) {
		lock := mustLock(t, w.locker(t, longTTL), "k")
		time.Sleep(2 * time.Hour)
		require.NoError(t, lock.UnlockAfter(t.Context(), time.Minute))
		st, err := w.locker(t).Inspect(t.Context(), "k")
		require.NoError(t, err)
		require.InDelta(t, time.Minute, st.TTL, float64(5*time.Millisecond))
	})
}

// TestOutageLeavesNoWaiters: callers of eight processes give up while Redis is of no use, or while
// a proxy answers for it. Their tokens and places in the queue are removed soon after it is back,
// so that the next callers are not held up by them.
func TestOutageLeavesNoWaiters(t *testing.T) {
	onEvery(t, queues, func(t *testing.T, w *world) {
		for name, begin := range outages {
			lock := mustLock(t, w.locker(t), name)
			ctx, leave := context.WithCancel(t.Context())
			var waiters sync.WaitGroup
			var links []*link
			for range 8 {
				l, link := w.linked(t, redlatch.WithOpTimeout(time.Second))
				links = append(links, link)
				waiters.Go(func() {
					_, err := l.Lock(ctx, name)
					require.ErrorIs(t, err, context.Canceled)
				})
			}
			time.Sleep(time.Second)
			st, err := w.locker(t).Inspect(t.Context(), name)
			require.NoError(t, err)
			require.Equal(t, 8, st.Waiters)
			for _, l := range links {
				begin(l)
			}
			time.Sleep(2 * time.Second)
			leave()
			waiters.Wait()
			time.Sleep(2 * time.Second)
			for _, l := range links {
				l.heal()
			}
			time.Sleep(3 * time.Second)
			st, err = w.locker(t).Inspect(t.Context(), name)
			require.NoError(t, err)
			require.Zero(t, st.Waiters, name)
			began := time.Now()
			require.NoError(t, lock.Unlock(t.Context()))
			next, err := w.locker(t).Lock(t.Context(), name)
			require.NoError(t, err)
			require.Zero(t, time.Since(began), name)
			require.NoError(t, next.Unlock(t.Context()))
		}
		onlyFences(t, w.Direct)
	})
}

// TestWordsOfAProxyAreAnOutage: calls are retried for the op timeout, waits for longer, and the
// errors match ErrUnavailable. They match that of a context only if the caller's has ended.
func TestWordsOfAProxyAreAnOutage(t *testing.T) {
	inner := fmt.Errorf("redis: all sentinels specified in configuration are unreachable: %w",
		errors.Join(context.DeadlineExceeded, errors.New("dial tcp: refused")))
	faults := map[string]func(*link){
		"all Sentinels are down": func(l *link) { l.fail(inner) },
		"a canceled dial":        func(l *link) { l.fail(context.Canceled) },
		"a breaker":              func(l *link) { l.fail(errors.New("circuit open")) },
	}
	for _, said := range []refusal{
		"upstream failure", "no upstream host", "ERR Connection refused", "ERR internal error", "ERR Connection timed out",
		"ERR proxy: server closed the connection", "upstream connect error", "ERR max number of clients reached", "NOAUTH Authentication required.",
	} {
		faults[string(said)] = func(l *link) { l.answer(said) }
	}
	onEvery(t, everyStrategy, func(t *testing.T, w *world) {
		for name, fault := range faults {
			l, link := w.linked(t, redlatch.WithOpTimeout(time.Second))
			lock := mustLock(t, l, name)
			fault(link)
			began := time.Now()
			for what, err := range map[string]error{
				"TryLock": func() error { _, err := l.TryLock(t.Context(), "other"); return err }(),
				"Extend":  lock.Extend(t.Context(), time.Minute),
				"Unlock":  lock.Unlock(t.Context()),
				"Do": redlatch.Do(t.Context(), l, "other", func(context.Context, *redlatch.Lock) error {
					return errors.New("not called")
				}),
			} {
				requireOnly(t, err, redlatch.ErrUnavailable, name, what)
				require.NotErrorIs(t, err, context.DeadlineExceeded)
				require.NotErrorIs(t, err, context.Canceled)
			}
			require.GreaterOrEqual(t, time.Since(began), 3*time.Second, "each is retried")
			link.heal()
			time.Sleep(2 * time.Second)

			held := mustLock(t, w.locker(t), name)
			got := make(chan *redlatch.Lock, 1)
			locking(t, got, l, name)
			time.Sleep(time.Second)
			fault(link)
			time.Sleep(5 * time.Second)
			require.NoError(t, held.Unlock(t.Context()))
			began = time.Now()
			link.heal()
			require.NoError(t, (<-got).Unlock(t.Context()))
			require.Less(t, time.Since(began), 1200*time.Millisecond, "%s: a second, and the pause of those who poll", name)
		}
	})
}

// TestKeptKeyKeepsNoMemory: what a call refers to is free when UnlockAfter has returned, and not
// when the key is.
func TestKeptKeyKeepsNoMemory(t *testing.T) {
	type key struct{}
	onEvery(t, keeping, func(t *testing.T, w *world) {
		l, freed := w.locker(t), new(atomic.Bool)
		func() {
			value := new([100_000]byte)
			runtime.AddCleanup(value, func(is *atomic.Bool) { is.Store(true) }, freed)
			ctx := context.WithValue(t.Context(), key{}, value)
			lock, err := l.Lock(ctx, "k")
			require.NoError(t, err)
			require.NoError(t, lock.UnlockAfter(ctx, time.Hour))
		}()
		for !freed.Load() {
			runtime.GC()
			time.Sleep(time.Second)
			require.Less(t, time.Minute, w.Direct.PTTL(t.Context(), "k").Val(), "the key is nearly free")
		}
	})
}

// TestThoseWhoHaveLeftTakeNoKeyAfterAnOutage: callers with little time give up during an outage,
// alone or in line. Their attempts, which are under way for the op timeout, do not keep the first
// caller out who comes when it is over.
func TestThoseWhoHaveLeftTakeNoKeyAfterAnOutage(t *testing.T) {
	onEvery(t, everyStrategy, func(t *testing.T, w *world) {
		for name, begin := range outages {
			if name == "silence" { // what is on its way may be carried out
				continue
			}
			l, link := w.linked(t, redlatch.WithOpTimeout(4*time.Second))
			require.NoError(t, mustLock(t, l, name).Unlock(t.Context()))
			begin(link)
			ctx, leave := context.WithCancel(t.Context())
			var callers sync.WaitGroup
			for i := range 20 {
				callers.Go(func() {
					acquire := l.Lock
					if i%2 == 0 {
						acquire = l.TryLock
					}
					_, err := acquire(ctx, name)
					require.Error(t, err)
				})
			}
			time.Sleep(3 * time.Second)
			leave()
			callers.Wait()
			link.heal()
			lock, err := l.TryLock(t.Context(), name)
			require.NoError(t, err, name)
			require.NoError(t, lock.Unlock(t.Context()))
		}
	})
}

// TestReleaseIsSentOnceMoreOnlyIfAnEarlierAcquireMayBeLeft: the reply to the first send was lost. Until its timeout has passed, that
// send may still be carried out.
func TestReleaseIsSentOnceMoreOnlyIfAnEarlierAcquireMayBeLeft(t *testing.T) {
	for held, want := range map[time.Duration]int64{100 * time.Millisecond: 2, 2 * time.Second: 1} {
		locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
			client, tap := locktest.Tapped(t, s)
			l := made(redlatch.NewSetNXPX(client, redlatch.WithOpTimeout(time.Second), redlatch.WithoutRenewal()))
			locktest.Warm(t, l)
			tap.Set(func(_ context.Context, send func() error) error {
				tap.Heal()
				_ = send()
				return io.EOF
			})
			lock := mustLock(t, l, "k")
			time.Sleep(held) // of the bubble
			before := tap.Sent.Load()
			unlock(t, lock)
			time.Sleep(time.Minute)
			require.Equal(t, want, tap.Sent.Load()-before, held)
		})
	}
}
