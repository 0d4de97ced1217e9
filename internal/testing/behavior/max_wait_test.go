package behavior_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/locktest"
)

// waitsFor are the calls that wait for a lock.
var waitsFor = map[string]func(ctx context.Context, l redlatch.Locker, opts ...redlatch.Option) error{
	"Lock": func(ctx context.Context, l redlatch.Locker, opts ...redlatch.Option) error {
		_, err := l.Lock(ctx, "k", opts...)
		return err
	},
	"Do": func(ctx context.Context, l redlatch.Locker, opts ...redlatch.Option) error {
		return redlatch.Do(ctx, l, "k", func(context.Context, *redlatch.Lock) error { panic("granted") }, opts...)
	},
	"DoAll": func(ctx context.Context, l redlatch.Locker, opts ...redlatch.Option) error {
		return redlatch.DoAll(ctx, l, []string{"free", "k"},
			func(context.Context, []*redlatch.Lock) error { panic("granted") }, opts...)
	},
}

// bounds are the ways to bound a wait.
var bounds = map[string]func(t *testing.T, w *world, d time.Duration) (redlatch.Locker, []redlatch.Option, *link){
	"of the call": func(t *testing.T, w *world, d time.Duration) (redlatch.Locker, []redlatch.Option, *link) {
		l, link := w.linked(t)
		return l, []redlatch.Option{redlatch.WithMaxWait(d)}, link
	},
	"of the Locker": func(t *testing.T, w *world, d time.Duration) (redlatch.Locker, []redlatch.Option, *link) {
		l, link := w.linked(t, redlatch.WithMaxWait(d))
		return l, nil, link
	},
}

// withSeveral returns every Locker, and that of readers and of a semaphore of three permits.
func withSeveral() map[string]maker {
	all := withReaders()
	all["Semaphore of 3"] = func(c redis.UniversalClient, opts ...redlatch.Option) (redlatch.Locker, error) {
		return redlatch.NewSemaphore(c, 3, opts...)
	}
	return all
}

// taken has others hold a key, so that nobody gets it for an hour.
func (w *world) taken(t *testing.T, key string) {
	t.Helper()
	switch w.name {
	case "Read":
		_, write, err := redlatch.NewReadWrite(w.Client(t))
		require.NoError(t, err)
		mustLock(t, write, key, longTTL)
	case "Semaphore of 3":
		l := w.locker(t)
		for range 3 {
			mustLock(t, l, key, longTTL)
		}
	default:
		mustLock(t, w.locker(t), key, longTTL)
	}
}

// TestMaxWaitIsExact: a wait ends when its time has passed, whether another owner or Redis is the
// reason. Then ctx has not ended, and the error does not say so. A ctx that ends sooner does.
func TestMaxWaitIsExact(t *testing.T) {
	for how, bound := range bounds {
		t.Run(how, func(t *testing.T) {
			onEvery(t, withSeveral(), func(t *testing.T, w *world) {
				w.taken(t, "k")
				l, opts, link := bound(t, w, 300*time.Millisecond)
				ended := func(what string, want time.Duration, kind error, call func() error) error {
					t.Helper()
					began := time.Now()
					err := call()
					requireOnly(t, err, kind, what)
					require.WithinDuration(t, began.Add(want), time.Now(), time.Millisecond, what)
					return err
				}
				warm(t, l)
				for name, wait := range waitsFor {
					err := ended(name, 300*time.Millisecond, redlatch.ErrNotAcquired, func() error { return wait(t.Context(), l, opts...) })
					require.ErrorContains(t, err, `"k": waited 300ms: the last attempt: `, name)
					require.NotErrorIs(t, err, context.DeadlineExceeded, name)

					short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
					err = ended(name, 200*time.Millisecond, redlatch.ErrNotAcquired, func() error { return wait(short, l, opts...) })
					cancel()
					require.ErrorIs(t, err, context.DeadlineExceeded, name)
					require.NotContains(t, err.Error(), "waited", name)
				}
				link.hang()
				err := ended("hung", 300*time.Millisecond, redlatch.ErrUnavailable, func() error { return waitsFor["Lock"](t.Context(), l, opts...) })
				require.ErrorContains(t, err, "waited 300ms")
				require.NotErrorIs(t, err, context.DeadlineExceeded)
			})
		})
	}
}

// TestMaxWaitSaysWhatEndedTheWait: another owner has the key, and then the server hangs. Once an attempt had no reply,
// Redis is the reason. Only a ctx that ends first is reported as such.
func TestMaxWaitSaysWhatEndedTheWait(t *testing.T) {
	const wait = 20 * time.Second // an op timeout is 4 s, and looks are 2 s apart
	for what, c := range map[string]struct {
		hangs time.Duration
		bound time.Duration // of ctx
		kind  error
	}{
		"another owner":          {wait + time.Second, time.Hour, redlatch.ErrNotAcquired},
		"another owner, and ctx": {wait + time.Second, wait - time.Second, redlatch.ErrNotAcquired},
		"the server":             {wait / 2, time.Hour, redlatch.ErrUnavailable},
		"the server, and ctx":    {wait / 2, wait - time.Second, redlatch.ErrUnavailable},
	} {
		t.Run(what, func(t *testing.T) {
			onEvery(t, withSeveral(), func(t *testing.T, w *world) {
				w.taken(t, "k")
				l, link := w.linked(t)
				warm(t, l)
				began := time.Now()
				time.AfterFunc(c.hangs, link.hang)
				ctx, cancel := context.WithTimeout(t.Context(), c.bound)
				defer cancel()
				_, err := l.Lock(ctx, "k", redlatch.WithMaxWait(wait))
				requireOnly(t, err, c.kind)
				require.WithinDuration(t, began.Add(min(wait, c.bound)), time.Now(), time.Millisecond)
				byCtx := c.bound < wait
				require.Equal(t, byCtx, errors.Is(err, context.DeadlineExceeded), err)
				require.Equal(t, !byCtx, strings.Contains(err.Error(), `"k": waited 20s: the last attempt: `), err)
			})
		})
	}
}

// warm has a Locker learn the clock of Redis.
func warm(t *testing.T, l redlatch.Locker) {
	require.NoError(t, mustLock(t, l, "warm").Unlock(t.Context()))
}

// TestMaxWaitDoesNotBoundTheWork: fn runs for longer, and its ctx has no deadline. Calls that do not
// wait are not bounded. Lead refuses it, and does not use that of its Locker.
func TestMaxWaitDoesNotBoundTheWork(t *testing.T) {
	onEvery(t, withSeveral(), func(t *testing.T, w *world) {
		l := w.locker(t, redlatch.WithMaxWait(time.Millisecond*300))
		work := func(ctx context.Context) error {
			time.Sleep(time.Minute)
			_, bounded := ctx.Deadline()
			require.False(t, bounded)
			return ctx.Err()
		}
		require.NoError(t, redlatch.Do(t.Context(), l, "k", func(ctx context.Context, _ *redlatch.Lock) error { return work(ctx) }))
		require.NoError(t, redlatch.DoAll(t.Context(), l, []string{"a", "b"}, func(ctx context.Context, _ []*redlatch.Lock) error {
			return work(ctx)
		}))
		err := redlatch.Lead(t.Context(), l, "k", never[*redlatch.Lock](t), redlatch.WithMaxWait(time.Second))
		requireOnly(t, err, redlatch.ErrInvalid)
		require.ErrorContains(t, err, "WithMaxWait(1s)")
		w.taken(t, "led")
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		err = redlatch.Lead(ctx, l, "led", never[*redlatch.Lock](t))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotContains(t, err.Error(), "waited")
		require.Equal(t, 5*time.Second, time.Since(began).Round(time.Millisecond))
	})
}

// TestMaxWaitIsOneForAllKeys: of DoAll, and for both sides of a migration, of which one has a bound.
func TestMaxWaitIsOneForAllKeys(t *testing.T) {
	t.Parallel()
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		others, began := made(redlatch.NewSetNXPX(s.Client(t))), time.Now()
		free := func(key string) { // in 200 ms
			lock := mustLock(t, others, key)
			time.AfterFunc(200*time.Millisecond, func() { _ = lock.Unlock(context.Background()) })
		}
		ended := func(err error) {
			t.Helper()
			requireOnly(t, err, redlatch.ErrNotAcquired)
			require.ErrorContains(t, err, "waited 300ms")
			require.WithinDuration(t, began.Add(300*time.Millisecond), time.Now(), time.Millisecond)
		}
		l := made(redlatch.NewSetNXPX(s.Client(t), redlatch.WithMaxWait(300*time.Millisecond)))
		warm(t, l)
		free("a")
		mustLock(t, others, "b")
		began = time.Now()
		ended(redlatch.DoAll(t.Context(), l, []string{"b", "a"}, never[[]*redlatch.Lock](t)))

		for _, bounded := range []string{"from", "to", "call"} {
			client := s.Client(t)
			side := func(name string, opts ...redlatch.Option) redlatch.Locker {
				if name == bounded {
					opts = append(opts, redlatch.WithMaxWait(300*time.Millisecond))
				}
				return made(redlatch.NewSetNXPX(client, opts...))
			}
			pair := made(redlatch.NewMigration(side("from"), side("to", redlatch.WithKeyPrefix("v2:"))))
			warm(t, pair)
			free("k " + bounded)
			mustLock(t, others, "v2:k "+bounded)
			var opts []redlatch.Option
			if bounded == "call" {
				opts = append(opts, redlatch.WithMaxWait(300*time.Millisecond))
			}
			began = time.Now()
			_, err := pair.Lock(t.Context(), "k "+bounded, opts...)
			ended(err)
		}
	})
}

// TestEachKeyGetsAnAttempt: the time of WithMaxWait has passed when a key is granted. The next one is
// acquired if it is free. Otherwise its owner is the reason, and not Redis.
func TestEachKeyGetsAnAttempt(t *testing.T) {
	onEvery(t, withReaders(), func(t *testing.T, w *world) {
		var late atomic.Bool
		l := w.locker(t, redlatch.WithMaxWait(300*time.Millisecond), redlatch.WithHooks(redlatch.Hooks{
			Acquired: func(_ context.Context, e redlatch.Event) {
				if e.Key == "a" && late.CompareAndSwap(false, true) {
					time.Sleep(400 * time.Millisecond) // of the bubble
				}
			},
		}))
		warm(t, l)
		ran := false
		err := redlatch.DoAll(t.Context(), l, []string{"a", "b", "c"}, func(context.Context, []*redlatch.Lock) error { ran = true; return nil })
		require.NoError(t, err)
		require.True(t, ran && late.Load())

		late.Store(false)
		w.taken(t, "b")
		err = redlatch.DoAll(t.Context(), l, []string{"a", "b"}, never[[]*redlatch.Lock](t))
		requireOnly(t, err, redlatch.ErrNotAcquired)
		require.ErrorContains(t, err, `do all "b": waited 300ms: the last attempt: `)
		require.True(t, late.Load())
	})
}

// TestSilenceOfALineIsNoLongerThanTheCall: another caller has asked before, and Redis is silent since.
func TestSilenceOfALineIsNoLongerThanTheCall(t *testing.T) {
	onEvery(t, withReaders(), func(t *testing.T, w *world) {
		l, link := w.linked(t)
		warm(t, l)
		link.hang()
		ctx, cancel := context.WithCancel(t.Context())
		var first sync.WaitGroup
		first.Go(func() { _, _ = l.Lock(ctx, "k") })
		time.Sleep(200 * time.Millisecond) // of the bubble
		_, err := l.Lock(t.Context(), "k", redlatch.WithMaxWait(100*time.Millisecond))
		requireOnly(t, err, redlatch.ErrUnavailable)
		require.ErrorContains(t, err, `"k": waited 100ms: the last attempt: `)
		require.ErrorContains(t, err, "no reply within 100ms")
		cancel()
		first.Wait()
		link.heal()
	})
}

// TestBoundedWaitsShareALine: calls with a bound of their own stand in line with those without.
func TestBoundedWaitsShareALine(t *testing.T) {
	onEvery(t, queues, func(t *testing.T, w *world) {
		holder, l := mustLock(t, w.locker(t), "k"), w.locker(t)
		var wg sync.WaitGroup
		for i := range 20 {
			opts := []redlatch.Option{redlatch.WithMaxWait(time.Duration(i+10) * time.Second)}
			wg.Go(func() { require.NoError(t, granted(l.Lock(t.Context(), "k", opts[:i%2]...)).Unlock(t.Context())) })
		}
		time.Sleep(5 * time.Second)
		st, err := l.Inspect(t.Context(), "k")
		require.NoError(t, err)
		require.Equal(t, 1, st.Waiters)
		require.NoError(t, holder.Unlock(t.Context()))
		wg.Wait()
	})
}
