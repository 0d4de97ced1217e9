package behavior_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// everyLocker has everyStrategy and a migration.
func everyLocker() map[string]func(c redis.UniversalClient, opts ...redlatch.Option) (redlatch.Locker, error) {
	lockers := map[string]func(c redis.UniversalClient, opts ...redlatch.Option) (redlatch.Locker, error){
		"Migration": func(c redis.UniversalClient, opts ...redlatch.Option) (redlatch.Locker, error) {
			from, err := redlatch.NewSetNXPX(c, opts...)
			if err != nil {
				return nil, err
			}
			to, err := redlatch.NewSetNXPX(c, append(opts, redlatch.WithKeyPrefix("v2:"))...)
			if err != nil {
				return nil, err
			}
			return redlatch.NewMigration(from, to)
		},
	}
	maps.Copy(lockers, everyStrategy)
	return lockers
}

// onEveryLocker runs f on every strategy and on a migration, each on a server of its own. locker makes Lockers.
func onEveryLocker(t *testing.T, f func(t *testing.T, direct *redis.Client, locker func(opts ...redlatch.Option) redlatch.Locker)) {
	t.Parallel()
	for name, made := range everyLocker() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			f(t, s.Client(t), func(opts ...redlatch.Option) redlatch.Locker {
				l, err := made(s.Client(t), append([]redlatch.Option{patience}, opts...)...)
				require.NoError(t, err)
				return l
			})
		})
	}
}

// bounded returns a ctx with a deadline, so that a failing test does not wait forever.
func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// never is an fn that must not be called.
func never[L any](t *testing.T) func(context.Context, L) error {
	return func(context.Context, L) error {
		t.Error("fn was called")
		return nil
	}
}

// on returns the option of a hook of one kind. The hook runs f once, at the first event of key.
func on(kind func(*redlatch.Hooks, func(redlatch.Event)), key string, f func()) redlatch.Option {
	var once sync.Once
	var h redlatch.Hooks
	kind(&h, func(e redlatch.Event) {
		if e.Key == key {
			once.Do(f)
		}
	})
	return redlatch.WithHooks(h)
}

func acquired(h *redlatch.Hooks, f func(redlatch.Event)) { h.Acquired = f }
func waiting(h *redlatch.Hooks, f func(redlatch.Event))  { h.Waiting = f }
func lost(h *redlatch.Hooks, f func(redlatch.Event))     { h.Lost = f }
func trouble(h *redlatch.Hooks, f func(redlatch.Event))  { h.Trouble = f }

// TestTryDoMakesOneAttempt: if another owner has the key, TryDo neither waits nor calls fn.
func TestTryDoMakesOneAttempt(t *testing.T) {
	onEveryLocker(t, func(t *testing.T, direct *redis.Client, locker func(...redlatch.Option) redlatch.Locker) {
		l := locker()
		theirs := mustLock(t, locker(), "k")
		ctx, cancel := context.WithCancel(bounded(t))
		defer cancel()
		err := redlatch.TryDo(ctx, l, "k", never[*redlatch.Lock](t), on(waiting, "k", cancel))
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		require.NoError(t, ctx.Err(), "TryDo waited")
		require.NoError(t, theirs.Unlock(t.Context()))

		failure := errors.New("no paper")
		err = redlatch.TryDo(t.Context(), l, "k", func(ctx context.Context, lock *redlatch.Lock) error {
			require.NoError(t, ctx.Err())
			require.NoError(t, lock.Err())
			require.ErrorIs(t, redlatch.TryDo(ctx, locker(), "k", never[*redlatch.Lock](t)), redlatch.ErrNotAcquired)
			return failure
		})
		require.Same(t, failure, err)
		gone(t, direct, "k")
		require.PanicsWithValue(t, "jam", func() {
			_ = redlatch.TryDo(t.Context(), l, "k", func(context.Context, *redlatch.Lock) error { panic("jam") })
		})
		gone(t, direct, "k")
	})
}

// TestDoAllAcquiresEachKeyOnceInOneOrder: the keys are sorted, each is acquired once, and they are released
// in reverse. fn gets the locks in that order, and the caller's slice stays as it is.
func TestDoAllAcquiresEachKeyOnceInOneOrder(t *testing.T) {
	onEveryLocker(t, func(t *testing.T, direct *redis.Client, locker func(...redlatch.Option) redlatch.Locker) {
		var taken, released heard
		ctx, cancel := context.WithCancel(bounded(t))
		defer cancel()
		l := locker(redlatch.WithHooks(redlatch.Hooks{
			Acquired: taken.add, Released: released.add,
			Waiting: func(redlatch.Event) { cancel() }, // only if DoAll waits for its own lock
		}))
		keys := []string{"c", "a", "b", "b", "a"}
		failure := errors.New("no paper")
		err := redlatch.DoAll(ctx, l, keys, func(ctx context.Context, locks []*redlatch.Lock) error {
			require.NoError(t, ctx.Err())
			require.Len(t, locks, 3)
			for i, key := range []string{"a", "b", "c"} {
				require.Equal(t, key, locks[i].Key())
				require.NoError(t, locks[i].Err())
				require.ErrorIs(t, redlatch.TryDo(ctx, locker(), key, never[*redlatch.Lock](t)), redlatch.ErrNotAcquired)
			}
			return failure
		})
		require.Same(t, failure, err)
		require.Equal(t, []string{"c", "a", "b", "b", "a"}, keys)
		require.Equal(t, []string{"a", "b", "c"}, orderOf(taken.all()))
		require.Equal(t, []string{"c", "b", "a"}, orderOf(released.all()))
		for _, key := range keys {
			gone(t, direct, key)
		}
	})
}

// orderOf returns the keys of events in order. The two sides of a migration count as one.
func orderOf(events []redlatch.Event) []string {
	var keys []string
	for _, e := range events {
		keys = append(keys, e.Key)
	}
	return slices.Compact(keys)
}

// TestDoAllIsAllOrNothing: a key in the middle is not granted, so all others are released and fn is not
// called.
func TestDoAllIsAllOrNothing(t *testing.T) {
	for name, c := range map[string]struct {
		inject func(t *testing.T, direct *redis.Client, l redlatch.Locker) // keeps b from being granted
		check  func(t *testing.T, err error)
	}{
		"another owner has it until ctx ends": {
			inject: func(t *testing.T, _ *redis.Client, l redlatch.Locker) { mustLock(t, l, "b") },
			check: func(t *testing.T, err error) {
				require.ErrorIs(t, err, context.Canceled)
				require.ErrorIs(t, err, redlatch.ErrNotAcquired)
				require.ErrorContains(t, err, `"b"`)
			},
		},
		"it is of another type": {
			inject: func(t *testing.T, direct *redis.Client, _ redlatch.Locker) {
				require.NoError(t, direct.RPush(t.Context(), "b", "data").Err())
			},
			check: func(t *testing.T, err error) {
				require.ErrorContains(t, err, "WRONGTYPE")
				require.NotErrorIs(t, err, context.Canceled)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			onEveryLocker(t, func(t *testing.T, direct *redis.Client, locker func(...redlatch.Option) redlatch.Locker) {
				l := locker(longTTL)
				ctx, cancel := context.WithCancel(bounded(t))
				defer cancel()
				require.NoError(t, redlatch.Do(ctx, l, "warm", func(context.Context, *redlatch.Lock) error { return nil }))
				c.inject(t, direct, locker(longTTL))
				var took atomic.Bool
				err := redlatch.DoAll(ctx, l, []string{"c", "b", "a"}, never[[]*redlatch.Lock](t),
					on(acquired, "a", func() { took.Store(true) }), on(waiting, "b", cancel))
				c.check(t, err)
				require.NotErrorIs(t, err, redlatch.ErrLost)
				require.True(t, took.Load())
				gone(t, direct, "a")
				gone(t, direct, "c")
			})
		})
	}
}

// TestTryDoAllIsAllOrNothingAtOnce: if another owner has a key in the middle, TryDoAll does not wait, releases all
// others, and does not call fn.
func TestTryDoAllIsAllOrNothingAtOnce(t *testing.T) {
	onEveryLocker(t, func(t *testing.T, direct *redis.Client, locker func(...redlatch.Option) redlatch.Locker) {
		var taken, released heard
		l := locker(redlatch.WithHooks(redlatch.Hooks{Acquired: taken.add, Released: released.add}))
		theirs := mustLock(t, locker(longTTL), "b")
		ctx, cancel := context.WithCancel(bounded(t))
		defer cancel()
		keys := []string{"c", "a", "b", "b", "a"}
		err := redlatch.TryDoAll(ctx, l, keys, never[[]*redlatch.Lock](t), longTTL, on(waiting, "b", cancel))
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		require.ErrorContains(t, err, `try lock "b"`)
		require.NotErrorIs(t, err, redlatch.ErrLost)
		require.NoError(t, ctx.Err(), "TryDoAll waited")
		require.Equal(t, []string{"a"}, orderOf(taken.all()))
		require.Equal(t, []string{"a"}, orderOf(released.all()))
		gone(t, direct, "a")
		gone(t, direct, "c")
		require.NoError(t, theirs.Unlock(t.Context()))

		failure := errors.New("no paper")
		err = redlatch.TryDoAll(t.Context(), l, keys, func(ctx context.Context, locks []*redlatch.Lock) error {
			require.NoError(t, ctx.Err())
			require.Len(t, locks, 3)
			for i, key := range []string{"a", "b", "c"} {
				require.Equal(t, key, locks[i].Key())
				require.ErrorIs(t, redlatch.TryDoAll(ctx, locker(), []string{key, "d"}, never[[]*redlatch.Lock](t)), redlatch.ErrNotAcquired)
			}
			return failure
		})
		require.Same(t, failure, err)
		for _, key := range []string{"a", "b", "c", "d"} {
			gone(t, direct, key)
		}
	})
}

// TestDoAllEndsWithAnOutage: Redis becomes unavailable before the second key is acquired. The error
// reports that, and nothing of the release of the first key.
func TestDoAllEndsWithAnOutage(t *testing.T) {
	t.Parallel()
	for name, strategy := range everyStrategy {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, p, client := behindProxy(t)
			l, err := strategy(client, redlatch.WithTTL(5*time.Second), redlatch.WithOpTimeout(time.Second))
			require.NoError(t, err)
			require.NoError(t, locktest.LockSoon(t, l, "warm").Unlock(t.Context()))
			err = redlatch.DoAll(bounded(t), l, []string{"b", "a"}, never[[]*redlatch.Lock](t), on(acquired, "a", p.Refuse))
			require.ErrorIs(t, err, redlatch.ErrUnavailable)
			require.NotErrorIs(t, err, redlatch.ErrNotAcquired)
			require.ErrorContains(t, err, `lock "b"`)
			require.NotContains(t, err.Error(), "unlock")
			p.Heal()
			l, err = strategy(client, patience)
			require.NoError(t, err)
			require.NoError(t, redlatch.DoAll(bounded(t), l, []string{"a", "b"}, func(context.Context, []*redlatch.Lock) error { return nil }))
		})
	}
}

// TestFinishedWorkIsNoFailure, on every Locker: fn returns while its locks are trusted, and Redis cannot be
// reached any more. The release gets no reply, which Hooks.Released reports. Do, TryDo and DoAll return fn's error and
// nothing of the release. Unlock returns its own.
func TestFinishedWorkIsNoFailure(t *testing.T) {
	t.Parallel()
	for name, made := range everyLocker() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, p, client := behindProxy(t)
			var released heard
			l, err := made(client, longTTL, redlatch.WithOpTimeout(300*time.Millisecond), redlatch.WithHooks(redlatch.Hooks{Released: released.add}))
			require.NoError(t, err)
			for i, result := range []error{nil, errors.New("no paper")} {
				fn := func(context.Context, *redlatch.Lock) error {
					p.Refuse()
					return result
				}
				for call, do := range map[string]func(key string) error{
					"Do":    func(key string) error { return redlatch.Do(t.Context(), l, key, fn) },
					"TryDo": func(key string) error { return redlatch.TryDo(t.Context(), l, key, fn) },
					"DoAll": func(key string) error {
						return redlatch.DoAll(t.Context(), l, []string{key, key + "b"}, func(ctx context.Context, locks []*redlatch.Lock) error { return fn(ctx, locks[0]) })
					},
				} {
					p.Heal()
					require.NoError(t, locktest.LockSoon(t, l, "warm").Unlock(t.Context()))
					before := len(released.all())
					if err := do(fmt.Sprint(call, i)); err != result { //nolint:errorlint // it is the same error, not one that wraps it
						t.Errorf("%s: %v", call, err)
					}
					events := released.all()[before:]
					require.NotEmpty(t, events)
					for _, e := range events {
						require.ErrorIs(t, e.Err, redlatch.ErrUnavailable)
					}
				}
			}
			p.Heal()
			lock := locktest.LockSoon(t, l, "k")
			p.Refuse()
			require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrUnavailable)
		})
	}
}

// TestDoReportsALockThatEndedBeforeFn, on every Locker: the error matches ErrLost, and ErrMaxHold if that
// ended the lock. It also matches fn's error.
func TestDoReportsALockThatEndedBeforeFn(t *testing.T) {
	onEveryLocker(t, func(t *testing.T, direct *redis.Client, locker func(...redlatch.Option) redlatch.Locker) {
		failure := errors.New("no paper")
		l := locker()
		var wg sync.WaitGroup
		for _, result := range []error{nil, failure} {
			for why, c := range map[string]struct {
				opt redlatch.Option
				end func(ctx context.Context, key string) error
				max bool
			}{
				"it was deleted": {longTTL, func(ctx context.Context, key string) error { return direct.Del(ctx, key).Err() }, false},
				"max hold":       {redlatch.WithMaxHold(time.Second), func(ctx context.Context, _ string) error { <-ctx.Done(); return nil }, true},
			} {
				fn := func(ctx context.Context, lock *redlatch.Lock) error {
					if err := c.end(ctx, lock.Key()); err != nil {
						return err
					}
					return result
				}
				for call, do := range map[string]func(key string) error{
					"Do":    func(key string) error { return redlatch.Do(t.Context(), l, key, fn, c.opt) },
					"TryDo": func(key string) error { return redlatch.TryDo(t.Context(), l, key, fn, c.opt) },
					"DoAll": func(key string) error {
						return redlatch.DoAll(t.Context(), l, []string{key + "a", key + "b"}, func(ctx context.Context, locks []*redlatch.Lock) error {
							return fn(ctx, locks[0])
						}, c.opt)
					},
				} {
					name := fmt.Sprint(call, ", ", why, ", ", result)
					wg.Go(func() {
						err := do(name)
						assert.ErrorIs(t, err, redlatch.ErrLost, name)
						assert.Equal(t, c.max, errors.Is(err, redlatch.ErrMaxHold), name)
						assert.Equal(t, result != nil, errors.Is(err, failure), name)
					})
				}
			}
		}
		wg.Wait()
	})
}

// TestDoAllNoticesALossBeforeFn: if a lock ends while DoAll waits for a later one, the wait ends. A lock
// that ends as the last one is granted is noticed too. Neither error matches ErrNotAcquired or an error of ctx.
func TestDoAllNoticesALossBeforeFn(t *testing.T) {
	t.Parallel()
	requireLoss := func(t *testing.T, err error) {
		require.ErrorIs(t, err, redlatch.ErrLost)
		require.ErrorContains(t, err, "before all locks were acquired")
		require.NotErrorIs(t, err, redlatch.ErrNotAcquired)
		require.NotErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
	}
	remove := func(t *testing.T, direct *redis.Client, key string) {
		require.NoError(t, direct.Del(t.Context(), key).Err())
	}
	t.Run("while DoAll waits", func(t *testing.T) {
		onEveryLocker(t, func(t *testing.T, direct *redis.Client, locker func(...redlatch.Option) redlatch.Locker) {
			theirs := mustLock(t, locker(longTTL), "b")
			requireLoss(t, redlatch.DoAll(bounded(t), locker(), []string{"c", "b", "a"}, never[[]*redlatch.Lock](t),
				redlatch.WithTTL(locktest.BriefTTL), on(waiting, "b", func() { remove(t, direct, "a") })))
			require.NoError(t, theirs.Unlock(t.Context()))
			for _, key := range []string{"a", "b", "c"} {
				gone(t, direct, key)
			}
		})
	})
	t.Run("before TryDoAll asks for a key that is held", func(t *testing.T) {
		onEveryLocker(t, func(t *testing.T, direct *redis.Client, locker func(...redlatch.Option) redlatch.Locker) {
			over := make(chan struct{})
			theirs := mustLock(t, locker(longTTL), "c")
			requireLoss(t, redlatch.TryDoAll(bounded(t), locker(), []string{"c", "b", "a"}, never[[]*redlatch.Lock](t),
				redlatch.WithTTL(locktest.BriefTTL), on(lost, "a", func() { close(over) }), on(acquired, "b", func() {
					remove(t, direct, "a")
					await(t, over, "the loss")
				})))
			require.NoError(t, theirs.Unlock(t.Context()))
			gone(t, direct, "b")
		})
	})
	t.Run("as the last lock is granted", func(t *testing.T) {
		onEveryLocker(t, func(t *testing.T, direct *redis.Client, locker func(...redlatch.Option) redlatch.Locker) {
			over := make(chan struct{})
			requireLoss(t, redlatch.DoAll(bounded(t), locker(), []string{"b", "a"}, never[[]*redlatch.Lock](t),
				redlatch.WithTTL(locktest.BriefTTL), on(lost, "a", func() { close(over) }), on(acquired, "b", func() {
					remove(t, direct, "a")
					await(t, over, "the loss")
				})))
			gone(t, direct, "b")
		})
	})
}

// TestCallersOfDoAllNeverDeadlock: 20 goroutines acquire random keys in random order. Each key guards a
// counter. If two goroutines held one key, a counter could lose an increment.
func TestCallersOfDoAllNeverDeadlock(t *testing.T) {
	onEveryLocker(t, func(t *testing.T, _ *redis.Client, locker func(...redlatch.Option) redlatch.Locker) {
		ctx := bounded(t)
		var counted [6]int // each guarded by the lock of its key
		var want [6]atomic.Int64
		lockers := []redlatch.Locker{locker(), locker()}
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				for range 10 {
					some := rand.Perm(len(counted))[:1+rand.N(len(counted)-1)]
					keys := make([]string, len(some))
					for i, n := range some {
						keys[i] = fmt.Sprint("k", n)
					}
					if err := redlatch.DoAll(ctx, lockers[i%2], keys, func(context.Context, []*redlatch.Lock) error {
						for _, n := range some {
							counted[n]++
							want[n].Add(1)
						}
						return nil
					}); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		for i := range counted {
			require.Equal(t, want[i].Load(), int64(counted[i]))
		}
	})
}

// TestFirstLostLockEndsCtx: if any lock is lost, the ctx of DoAll's fn ends. The cause is the Err of that
// lock. The other locks are released.
func TestFirstLostLockEndsCtx(t *testing.T) {
	t.Parallel()
	for i, victim := range []string{"a", "b", "c"} {
		t.Run(victim, func(t *testing.T) {
			onEveryLocker(t, func(t *testing.T, direct *redis.Client, locker func(...redlatch.Option) redlatch.Locker) {
				err := redlatch.DoAll(bounded(t), locker(), []string{"a", "b", "c"}, func(ctx context.Context, locks []*redlatch.Lock) error {
					require.NoError(t, direct.Del(ctx, victim).Err())
					await(t, ctx.Done(), "the loss")
					cause := context.Cause(ctx)
					require.ErrorIs(t, cause, redlatch.ErrLost)
					for j, lock := range locks {
						if j == i {
							require.Same(t, lock.Err(), cause)
						} else {
							require.NoError(t, lock.Err())
						}
					}
					return nil
				}, redlatch.WithTTL(locktest.BriefTTL))
				require.ErrorIs(t, err, redlatch.ErrLost)
				require.ErrorContains(t, err, fmt.Sprintf("unlock %q", victim))
				for _, key := range []string{"a", "b", "c"} {
					gone(t, direct, key)
				}
			})
		})
	}
}

// TestPanicReleasesAll: a panic in fn releases all locks. So does runtime.Goexit, which t.FailNow calls.
func TestPanicReleasesAll(t *testing.T) {
	onEveryLocker(t, func(t *testing.T, direct *redis.Client, locker func(...redlatch.Option) redlatch.Locker) {
		l := locker(longTTL)
		require.PanicsWithValue(t, "jam", func() {
			_ = redlatch.DoAll(t.Context(), l, []string{"a", "b", "c"}, func(context.Context, []*redlatch.Lock) error { panic("jam") })
		})
		for _, key := range []string{"a", "b", "c"} {
			gone(t, direct, key)
		}

		over := make(chan struct{})
		go func() { // ends in fn
			defer close(over)
			_ = redlatch.DoAll(t.Context(), l, []string{"a", "b"}, func(context.Context, []*redlatch.Lock) error {
				runtime.Goexit()
				return nil
			})
		}()
		<-over
		gone(t, direct, "a")
		gone(t, direct, "b")
	})
}

// TestDoAllReportsEveryLostLock: the losses are joined to fn's error. It is no failure if fn has unlocked a
// lock itself.
func TestDoAllReportsEveryLostLock(t *testing.T) {
	onEveryLocker(t, func(t *testing.T, direct *redis.Client, locker func(...redlatch.Option) redlatch.Locker) {
		failure := errors.New("no paper")
		err := redlatch.DoAll(t.Context(), locker(longTTL), []string{"a", "b", "c"}, func(ctx context.Context, locks []*redlatch.Lock) error {
			require.NoError(t, locks[1].Unlock(ctx))
			require.ErrorIs(t, context.Cause(ctx), redlatch.ErrReleased)
			require.NoError(t, direct.Del(t.Context(), "a", "c").Err())
			return failure
		})
		require.ErrorIs(t, err, failure)
		require.ErrorIs(t, err, redlatch.ErrLost)
		require.NotErrorIs(t, err, redlatch.ErrReleased)
		for _, key := range []string{"a", "c"} {
			require.ErrorContains(t, err, fmt.Sprintf("unlock %q", key))
		}
	})
}

func TestInvalidCallsSendNothing(t *testing.T) {
	client := redistest.Start(t).Client(t)
	var sent atomic.Int64
	client.AddHook(locktest.Count(&sent))
	l := newLocker(t, client)
	ctx := bounded(t)
	ended, end := context.WithCancel(ctx)
	end()
	one, all := never[*redlatch.Lock](t), never[[]*redlatch.Lock](t)
	bad := redlatch.WithTTL(0)
	lockErr := func(_ *redlatch.Lock, err error) error { return err }
	for what, err := range map[string]error{
		"TryDo without a Locker":         redlatch.TryDo(ctx, nil, "k", one),
		"TryDo without fn":               redlatch.TryDo(ctx, l, "k", nil),
		"TryDo without a key":            redlatch.TryDo(ctx, l, "", one),
		"TryDo without ctx":              redlatch.TryDo(nil, l, "k", one), //nolint:staticcheck // what a caller may do
		"TryDo with a bad option":        redlatch.TryDo(ctx, l, "k", one, bad),
		"DoAll without a Locker":         redlatch.DoAll(ctx, nil, []string{"k"}, all),
		"DoAll without fn":               redlatch.DoAll(ctx, l, []string{"k"}, nil),
		"DoAll without keys":             redlatch.DoAll(ctx, l, nil, all),
		"DoAll with an empty key":        redlatch.DoAll(ctx, l, []string{"k", ""}, all),
		"DoAll without ctx":              redlatch.DoAll(nil, l, []string{"k"}, all), //nolint:staticcheck // what a caller may do
		"DoAll with a bad option":        redlatch.DoAll(ctx, l, []string{"k"}, all, bad),
		"TryDoAll without a Locker":      redlatch.TryDoAll(ctx, nil, []string{"k"}, all),
		"TryDoAll without fn":            redlatch.TryDoAll(ctx, l, []string{"k"}, nil),
		"TryDoAll without keys":          redlatch.TryDoAll(ctx, l, nil, all),
		"TryDoAll with an empty key":     redlatch.TryDoAll(ctx, l, []string{"k", ""}, all),
		"TryDoAll without ctx":           redlatch.TryDoAll(nil, l, []string{"k"}, all), //nolint:staticcheck // what a caller may do
		"Lead without a Locker":          redlatch.Lead(ctx, nil, "k", one),
		"Lead without fn":                redlatch.Lead(ctx, l, "k", nil),
		"Lead without a key":             redlatch.Lead(ctx, l, "", one),
		"Lead without ctx":               redlatch.Lead(nil, l, "k", one), //nolint:staticcheck // what a caller may do
		"Lead with a bad option":         redlatch.Lead(ctx, l, "k", one, bad),
		"Lead with a nil option":         redlatch.Lead(ctx, l, "k", one, nil),
		"an owner like a kept value":     lockErr(l.TryLock(ctx, "k", redlatch.WithOwner("~1"))),
		"Lead, after ctx":                redlatch.Lead(ended, l, "k", one, bad),
		"Lead with an option it refuses": redlatch.Lead(ctx, l, "k", one, redlatch.WithReplicas(1, time.Hour)),
	} {
		require.ErrorIs(t, err, redlatch.ErrInvalidOption, what)
	}
	require.Zero(t, sent.Load())
}

// A term is one call of Lead's fn.
type term struct {
	lock *redlatch.Lock
	over <-chan struct{}
}

// lead runs Lead on k until stop is called. stop cancels ctx and requires that Lead returns ctx's error. Each term is
// sent to terms, and lasts until its ctx ends.
func lead(t *testing.T, l redlatch.Locker, terms chan<- term, opts ...redlatch.Option) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	result := make(chan error, 1)
	go func() { // ends with stop, or with the test
		result <- redlatch.Lead(ctx, l, "k", func(ctx context.Context, lock *redlatch.Lock) error {
			over := make(chan struct{})
			defer close(over)
			select {
			case terms <- term{lock, over}:
				<-ctx.Done()
			case <-ctx.Done():
			}
			if err := lock.Err(); err != nil && !errors.Is(context.Cause(ctx), redlatch.ErrLost) {
				t.Errorf("the lock ended, but the cause is %v", context.Cause(ctx))
			}
			return errors.New("ends the term and not Lead")
		}, opts...)
	}()
	return func() {
		t.Helper()
		shutdown := errors.New("shutdown")
		cancel(shutdown)
		err := await(t, result, "Lead returns")
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, shutdown)
	}
}

// await receives from c, with a deadline that only a failure reaches.
func await[T any](t *testing.T, c <-chan T, what string) (it T) {
	t.Helper()
	select {
	case it = <-c:
	case <-time.After(30 * time.Second):
		require.Fail(t, "timed out waiting: "+what)
	}
	return it
}

// TestLostLeaderIsFollowed: the leader's lock is deleted again and again, and each time somebody leads again.
func TestLostLeaderIsFollowed(t *testing.T) {
	onEveryLocker(t, func(t *testing.T, direct *redis.Client, locker func(...redlatch.Option) redlatch.Locker) {
		terms := make(chan term)
		stops := []func(){lead(t, locker(redlatch.WithTTL(locktest.BriefTTL)), terms), lead(t, locker(redlatch.WithTTL(locktest.BriefTTL)), terms)}
		for range 3 {
			now := await(t, terms, "a term")
			require.NoError(t, direct.Del(t.Context(), "k").Err())
			await(t, now.over, "the lock is lost")
			require.ErrorIs(t, now.lock.Err(), redlatch.ErrLost)
		}
		for _, stop := range stops {
			stop()
		}
		gone(t, direct, "k")
	})
}

// TestLeadOutlastsAnOutage: Redis is unavailable for longer than the lock lasts, and hooks report it.
// Then the leader leads again.
func TestLeadOutlastsAnOutage(t *testing.T) {
	t.Parallel()
	for name, strategy := range everyStrategy {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			direct, p, client := behindProxy(t)
			troubled := make(chan struct{})
			l, err := strategy(client, redlatch.WithTTL(locktest.BriefTTL), redlatch.WithOpTimeout(300*time.Millisecond),
				on(trouble, "k", func() { close(troubled) }))
			require.NoError(t, err)
			terms := make(chan term)
			stop := lead(t, l, terms)
			first := await(t, terms, "a term")
			p.Refuse()
			await(t, first.over, "the lock is lost")
			require.ErrorIs(t, first.lock.Err(), redlatch.ErrLost)
			await(t, troubled, "Lock has failed")
			p.Heal()
			second := await(t, terms, "a term")
			require.NoError(t, second.lock.Err())
			require.NotEqual(t, first.lock.Token(), second.lock.Token())
			stop()
			await(t, second.over, "the term is over")
			gone(t, direct, "k")
		})
	}
}

// inBubble runs f in a synctest bubble, with a client of a miniredis in the bubble.
func inBubble(t *testing.T, f func(t *testing.T, client *redis.Client)) {
	synctest.Test(t, func(t *testing.T) {
		server := miniredis.NewMiniRedis()
		server.ClockTTL(true)
		defer server.Close()
		client := redis.NewClient(&redis.Options{
			Addr:   "127.0.0.1:6379",
			Dialer: func(context.Context, string, string) (net.Conn, error) { return server.Dial() },
		})
		defer client.Close()
		f(t, client)
		time.Sleep(time.Minute) // the subscriptions of waiters close meanwhile
	})
}

// TestLeadPausesBetweenTerms: an fn that returns or fails at once does not hammer Redis.
func TestLeadPausesBetweenTerms(t *testing.T) {
	for name, result := range map[string]error{"nil": nil, "a failure": errors.New("no paper"), "ErrInvalidOption": redlatch.ErrInvalidOption} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, client *redis.Client) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				var begun []time.Time
				err := redlatch.Lead(ctx, newLocker(t, client), "k", func(context.Context, *redlatch.Lock) error {
					begun = append(begun, time.Now())
					return result
				})
				require.ErrorIs(t, err, context.DeadlineExceeded)
				requireGaps(t, begun, func(int) time.Duration { return time.Second })
				require.Greater(t, len(begun), 55)
			})
		})
	}
}

// requireGaps fails unless the i-th gap is between most(i)/2 and most(i).
func requireGaps(t *testing.T, times []time.Time, most func(i int) time.Duration) {
	t.Helper()
	for i := range len(times) - 1 {
		gap := times[i+1].Sub(times[i])
		require.GreaterOrEqual(t, gap, most(i)/2, "gap %d", i)
		require.Less(t, gap, most(i)+10*time.Millisecond, "gap %d", i) // Redis takes some time
	}
}

// moody is a Locker that wraps another and fails while it has errors.
type moody struct {
	redlatch.Locker
	errs  []error
	asked []time.Time
}

func (m *moody) Lock(ctx context.Context, key string, opts ...redlatch.Option) (*redlatch.Lock, error) {
	m.asked = append(m.asked, time.Now())
	if len(m.errs) > 0 {
		err := m.errs[0]
		m.errs = m.errs[1:]
		return nil, err
	}
	return m.Locker.Lock(ctx, key, opts...)
}

// TestLeadAsksEverLessOftenWhileLockFails: with a Locker that the caller wrote: while Lock fails, the
// pause doubles up to 16 s. After a term it is short again.
func TestLeadAsksEverLessOftenWhileLockFails(t *testing.T) {
	inBubble(t, func(t *testing.T, client *redis.Client) {
		away := slices.Repeat([]error{fmt.Errorf("proxy: %w", redlatch.ErrUnavailable)}, 10)
		l := &moody{Locker: newLocker(t, client), errs: away}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		terms := 0
		err := redlatch.Lead(ctx, l, "k", func(context.Context, *redlatch.Lock) error {
			switch terms++; terms {
			case 1:
				l.errs = away[:1]
			case 3:
				cancel()
			}
			return nil
		})
		require.ErrorIs(t, err, context.Canceled)
		pauses := []float64{1, 2, 4, 8, 16, 16, 16, 16, 16, 16, 1, 1, 1} // ten errors, a term, an error, two terms
		require.Len(t, l.asked, len(pauses)+1)
		requireGaps(t, l.asked, func(i int) time.Duration { return time.Duration(pauses[i] * float64(time.Second)) })
	})
}

// TestLeadEndsWithWhatRetryingCannotFix: On a quorum, a key of another type counts as a failure of the
// node, so Lead retries.
func TestLeadEndsWithWhatRetryingCannotFix(t *testing.T) {
	onEveryLocker(t, func(t *testing.T, direct *redis.Client, locker func(...redlatch.Option) redlatch.Locker) {
		l := locker()
		require.NoError(t, redlatch.Do(t.Context(), l, "warm", func(context.Context, *redlatch.Lock) error { return nil }))
		require.NoError(t, direct.RPush(t.Context(), "k", "data").Err())
		ctx, cancel := context.WithCancel(bounded(t))
		defer cancel()
		var troubles heard
		err := redlatch.Lead(ctx, l, "k", never[*redlatch.Lock](t), redlatch.WithHooks(redlatch.Hooks{Trouble: func(e redlatch.Event) {
			troubles.add(e)
			cancel()
		}}))
		if all := troubles.all(); len(all) == 0 {
			require.ErrorContains(t, err, "WRONGTYPE")
			require.NotErrorIs(t, err, context.Canceled)
		} else {
			require.ErrorIs(t, all[0].Err, redlatch.ErrNoQuorum)
			require.ErrorContains(t, all[0].Err, "WRONGTYPE")
			require.ErrorIs(t, err, context.Canceled)
		}
		require.Equal(t, int64(1), direct.LLen(t.Context(), "k").Val())

		for _, final := range []error{errors.ErrUnsupported, redlatch.ErrInvalidOption} {
			wrapper := &moody{Locker: l, errs: []error{fmt.Errorf("no: %w", final)}}
			require.ErrorIs(t, redlatch.Lead(bounded(t), wrapper, "k", never[*redlatch.Lock](t)), final)
			require.Len(t, wrapper.asked, 1)
		}
	})
}

// TestLeadIsStoppedByItsFn: if fn cancels ctx, Lead returns the cause and releases the lock.
func TestLeadIsStoppedByItsFn(t *testing.T) {
	onEveryLocker(t, func(t *testing.T, direct *redis.Client, locker func(...redlatch.Option) redlatch.Locker) {
		done := errors.New("done")
		ctx, stop := context.WithCancelCause(bounded(t))
		defer stop(nil)
		err := redlatch.Lead(ctx, locker(longTTL), "k", func(context.Context, *redlatch.Lock) error {
			stop(done)
			return nil
		})
		require.ErrorIs(t, err, done)
		require.ErrorIs(t, err, context.Canceled)
		gone(t, direct, "k")
	})
}

// TestPanicOfALeaderReleases: the lock is released, and the panic continues to the caller.
func TestPanicOfALeaderReleases(t *testing.T) {
	onEveryLocker(t, func(t *testing.T, direct *redis.Client, locker func(...redlatch.Option) redlatch.Locker) {
		require.PanicsWithValue(t, "jam", func() {
			_ = redlatch.Lead(bounded(t), locker(longTTL), "k", func(context.Context, *redlatch.Lock) error { panic("jam") })
		})
		gone(t, direct, "k")
	})
}

// TestStoppedLeadSaysWhyItDidNotLead: Lock has failed because of Redis, and ctx ends during the pause.
func TestStoppedLeadSaysWhyItDidNotLead(t *testing.T) {
	inBubble(t, func(t *testing.T, client *redis.Client) {
		l := &moody{Locker: newLocker(t, client), errs: []error{fmt.Errorf("proxy: %w", redlatch.ErrUnavailable)}}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		err := redlatch.Lead(ctx, l, "k", never[*redlatch.Lock](t))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, redlatch.ErrUnavailable)
		require.ErrorContains(t, err, "proxy")
	})
}

// TestLeaderThatRunsOnIsReportedOnce: the lock of a leader is lost, and fn ignores its ctx. Hooks.Trouble reports that once, a
// second after the loss, and SlogHooks says what runs on. An fn that stops in time is not reported, and neither is one that
// outlives only the ctx of Lead, under its lock, or has unlocked that lock itself.
func TestLeaderThatRunsOnIsReportedOnce(t *testing.T) {
	for name, c := range map[string]struct {
		opts     []redlatch.Option
		deleted  bool // the key, when fn begins
		fn       func(ctx context.Context, lock *redlatch.Lock, stop func())
		reported bool
	}{
		"an fn that ignores the loss": {
			deleted: true, fn: func(context.Context, *redlatch.Lock, func()) { time.Sleep(time.Minute) }, reported: true,
		},
		"an fn that outlives WithMaxHold": {
			opts: []redlatch.Option{redlatch.WithMaxHold(5 * time.Second), redlatch.WithTTL(time.Second)},
			fn:   func(context.Context, *redlatch.Lock, func()) { time.Sleep(time.Minute) }, reported: true,
		},
		"an fn that takes half a second to stop": {deleted: true, fn: func(ctx context.Context, _ *redlatch.Lock, _ func()) {
			<-ctx.Done()
			time.Sleep(500 * time.Millisecond)
		}},
		"an fn that outlives the ctx of Lead": {
			opts: []redlatch.Option{redlatch.WithTTL(time.Hour)},
			fn: func(_ context.Context, _ *redlatch.Lock, stop func()) {
				stop()
				time.Sleep(time.Minute)
			},
		},
		"an fn that unlocks": {fn: func(ctx context.Context, lock *redlatch.Lock, _ func()) {
			assert.NoError(t, lock.Unlock(ctx))
			time.Sleep(time.Minute)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, client *redis.Client) {
				var troubles heard
				var logged bytes.Buffer
				hooks := redlatch.JoinHooks(redlatch.Hooks{Trouble: troubles.add}, redlatch.SlogHooks(slog.New(slog.NewTextHandler(&logged, nil))))
				l, err := redlatch.NewSetNXPX(client, redlatch.WithHooks(hooks))
				require.NoError(t, err)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				err = redlatch.Lead(ctx, l, "k", func(ctx context.Context, lock *redlatch.Lock) error {
					if c.deleted {
						assert.NoError(t, client.Del(ctx, "k").Err())
					}
					c.fn(ctx, lock, cancel)
					cancel()
					return nil
				}, c.opts...)
				require.ErrorIs(t, err, context.Canceled)
				time.Sleep(time.Minute)
				synctest.Wait() // the hooks have returned
				all := troubles.all()
				if !c.reported {
					require.Empty(t, all)
					require.NotContains(t, logged.String(), "runs on")
					return
				}
				require.Len(t, all, 1)
				require.Equal(t, "overrun", all[0].Cause)
				require.Equal(t, "k", all[0].Key)
				require.NotZero(t, all[0].Fence)
				require.ErrorIs(t, all[0].Err, redlatch.ErrLost)
				require.NotErrorIs(t, all[0].Err, redlatch.ErrUnavailable)
				require.Equal(t, 1, strings.Count(logged.String(), "leader runs on"), logged.String())
			})
		})
	}
}

// TestHookThatPanicsLeavesNoLock: a hook of a call panics when the lock is granted, or when the call starts to wait. The panic goes
// on in the goroutine of its caller only, and the lock is free for the next one.
func TestHookThatPanicsLeavesNoLock(t *testing.T) {
	t.Parallel()
	for name, strategy := range everyStrategy {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			l, err := strategy(s.Client(t), patience, redlatch.WithTTL(time.Minute))
			require.NoError(t, err)
			other, err := strategy(s.Client(t), patience)
			require.NoError(t, err)
			boom := func(redlatch.Event) { panic("of the caller") }
			acquired, waiting := redlatch.WithHooks(redlatch.Hooks{Acquired: boom}), redlatch.WithHooks(redlatch.Hooks{Waiting: boom})
			require.Panics(t, func() { _, _ = l.TryLock(t.Context(), "k", acquired) })
			require.Panics(t, func() { _, _ = l.Lock(t.Context(), "k", acquired) })
			holder := mustLock(t, other, "k")
			require.Panics(t, func() { _, _ = l.Lock(t.Context(), "k", waiting) })
			require.NoError(t, holder.Unlock(t.Context()))
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			lock, err := other.Lock(ctx, "k")
			require.NoError(t, err)
			require.NoError(t, lock.Unlock(t.Context()))
		})
	}
}

// TestWaitingForOneselfIsRefused, on every Locker: fn of Do wants the key that it holds, by Lock, by DoAll, and as a leader. The
// error says so, and nothing waits. Another key is locked, and the same one once its lock has ended.
func TestWaitingForOneselfIsRefused(t *testing.T) {
	onEveryLocker(t, func(t *testing.T, _ *redis.Client, locker func(opts ...redlatch.Option) redlatch.Locker) {
		l, ran := locker(), false
		err := redlatch.Do(t.Context(), l, "k", func(ctx context.Context, lock *redlatch.Lock) error {
			return redlatch.Do(ctx, l, "other", func(ctx context.Context, _ *redlatch.Lock) error {
				ran = true
				_, err := l.Lock(ctx, "k")
				require.ErrorIs(t, err, redlatch.ErrInvalidOption)
				require.ErrorContains(t, err, "wait for itself")
				_, err = l.Lock(ctx, "k", redlatch.WithTTL(time.Minute))
				require.ErrorIs(t, err, redlatch.ErrInvalidOption)
				all := redlatch.DoAll(ctx, l, []string{"another", "k"}, func(context.Context, []*redlatch.Lock) error { return nil })
				require.ErrorIs(t, all, redlatch.ErrInvalidOption)
				require.ErrorIs(t, redlatch.Lead(ctx, l, "k", never[*redlatch.Lock](t)), redlatch.ErrInvalidOption)
				_, err = l.TryLock(ctx, "k")
				require.ErrorIs(t, err, redlatch.ErrNotAcquired)
				require.NoError(t, lock.Unlock(ctx))
				again, err := l.Lock(context.WithoutCancel(ctx), "k")
				require.NoError(t, err, "the lock has ended")
				return again.Unlock(ctx)
			})
		})
		require.NoError(t, err)
		require.True(t, ran)
	})
}
