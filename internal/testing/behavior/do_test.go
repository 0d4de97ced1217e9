package behavior_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/locktest"
	"github.com/redlatch/redlatch/redlatchtest"
)

type (
	withOne = func(ctx context.Context, lock *redlatch.Lock) error
	withAll = func(ctx context.Context, locks []*redlatch.Lock) error
)

// doingAll are the calls that run a function under several locks.
var doingAll = map[string]func(context.Context, redlatch.Locker, []string, withAll, ...redlatch.Option) error{
	"DoAll": redlatch.DoAll, "TryDoAll": redlatch.TryDoAll,
}

// doers are all calls that run a function under a lock. If a call takes several keys, it locks two
// others too, and fn gets the lock of the first.
func doers() map[string]func(ctx context.Context, l redlatch.Locker, key string, fn withOne, opts ...redlatch.Option) error {
	calls := map[string]func(context.Context, redlatch.Locker, string, withOne, ...redlatch.Option) error{"Do": redlatch.Do, "TryDo": redlatch.TryDo}
	for name, do := range doingAll {
		calls[name] = func(ctx context.Context, l redlatch.Locker, key string, fn withOne, opts ...redlatch.Option) error {
			return do(ctx, l, []string{key + " c", key, key + " b"}, func(ctx context.Context, locks []*redlatch.Lock) error { return fn(ctx, locks[0]) }, opts...)
		}
	}
	return calls
}

// never is an fn that must not be called.
func never[L any](t *testing.T) func(context.Context, L) error {
	return func(context.Context, L) error {
		t.Error("fn was called")
		return nil
	}
}

// on returns the option of a hook of one kind. The hook runs f once, at the first event of key.
func on(kind func(*redlatch.Hooks, func(context.Context, redlatch.Event)), key string, f func()) redlatch.Option {
	var once sync.Once
	var h redlatch.Hooks
	kind(&h, func(_ context.Context, e redlatch.Event) {
		if e.Key == key {
			once.Do(f)
		}
	})
	return redlatch.WithHooks(h)
}

func acquired(h *redlatch.Hooks, f func(context.Context, redlatch.Event)) { h.Acquired = f }
func waiting(h *redlatch.Hooks, f func(context.Context, redlatch.Event))  { h.Waiting = f }
func lost(h *redlatch.Hooks, f func(context.Context, redlatch.Event))     { h.Lost = f }

// orderOf returns the keys of events in order. The two sides of a migration count as one.
func orderOf(events []redlatch.Event) (keys []string) {
	for _, e := range events {
		keys = append(keys, e.Key)
	}
	return slices.Compact(keys)
}

// TestDoAllAcquiresEachKeyOnceInOneOrder: the keys are sorted, each is acquired once, and they are
// released in reverse. So callers never deadlock. fn gets the locks in that order, and the caller's
// slice stays as it is.
func TestDoAllAcquiresEachKeyOnceInOneOrder(t *testing.T) {
	onEvery(t, everyLocker(), func(t *testing.T, w *world) {
		for name, do := range doingAll {
			var taken, released heard
			l := w.locker(t, redlatch.WithHooks(redlatch.Hooks{Acquired: taken.add, Released: released.add}))
			keys := []string{"c", "a", "b", "b", "a"}
			failure := errors.New("no paper")
			err := do(bounded(t), l, keys, func(ctx context.Context, locks []*redlatch.Lock) error {
				require.NoError(t, ctx.Err())
				require.Len(t, locks, 3)
				for i, key := range []string{"a", "b", "c"} {
					require.Equal(t, key, locks[i].Key())
					require.NoError(t, locks[i].Err())
					require.ErrorIs(t, redlatch.TryDo(ctx, w.locker(t), key, never[*redlatch.Lock](t)), redlatch.ErrNotAcquired)
				}
				return failure
			})
			require.Same(t, failure, err, name)
			require.Equal(t, []string{"c", "a", "b", "b", "a"}, keys)
			require.Equal(t, []string{"a", "b", "c"}, orderOf(taken.all()))
			require.Equal(t, []string{"c", "b", "a"}, orderOf(released.all()))
			gone(t, w.Direct, "a", "b", "c")
		}
	})
}

// TestDoAllIsAllOrNothing: a key in the middle is not granted, or the first lock ends before the
// last is granted. So the others are released, and fn is not called. A try does not wait.
func TestDoAllIsAllOrNothing(t *testing.T) {
	onEvery(t, everyLocker(), func(t *testing.T, w *world) {
		for _, c := range []struct {
			call, held string                                                       // another owner has held
			event      func(*redlatch.Hooks, func(context.Context, redlatch.Event)) // when it happens
			key, what  string
			want       error
		}{
			{"TryDoAll", "b", waiting, "b", "ctx ends", redlatch.ErrNotAcquired},
			{"DoAll", "b", waiting, "b", "ctx ends", redlatch.ErrNotAcquired},
			{"DoAll", "", acquired, "a", "Redis fails", redlatch.ErrUnavailable},
			{"DoAll", "b", waiting, "b", "a is deleted", redlatch.ErrLost},
			{"TryDoAll", "c", acquired, "b", "a is lost", redlatch.ErrLost},
			{"DoAll", "", acquired, "c", "a is lost", redlatch.ErrLost},
		} {
			l, link := w.linked(t)
			if c.held != "" {
				mustLock(t, w.locker(t, redlatch.WithoutRenewal()), c.held, longTTL)
			}
			over := make(chan struct{})
			ctx, end := context.WithCancel(bounded(t))
			happens := map[string]func(){
				"ctx ends":     end,
				"Redis fails":  link.refuse,
				"a is deleted": func() { w.Direct.Del(t.Context(), "a") },
				"a is lost": func() {
					w.Direct.Del(t.Context(), "a")
					await(t, over, "the loss")
				},
			}[c.what]
			err := doingAll[c.call](ctx, l, []string{"c", "b", "a"}, never[[]*redlatch.Lock](t), redlatch.WithTTL(20*time.Second),
				on(lost, "a", func() { close(over) }), on(c.event, c.key, happens))
			end()
			link.heal()
			requireOnly(t, err, c.want, c)
			require.Equal(t, c.call == "DoAll" && c.what == "ctx ends", errors.Is(err, context.Canceled), c)
			require.Equal(t, c.what[0] == 'a', strings.Contains(err.Error(), "before all locks were acquired"), c)
			require.NotContains(t, err.Error(), "unlock \"b\"")
			if c.held != "" {
				require.Equal(t, int64(1), w.Direct.Del(t.Context(), c.held).Val())
			}
			gone(t, w.Direct, "a", "b", "c")
			require.NoError(t, w.Direct.FlushAll(t.Context()).Err())
		}
	})
}

// TestFinishedWorkIsNoFailure: fn returns while its lock is trusted, and Redis cannot be reached
// any more. Hooks.Released reports that the release got no reply. The call returns fn's error only,
// but Unlock returns its own.
func TestFinishedWorkIsNoFailure(t *testing.T) {
	onEvery(t, everyLocker(), func(t *testing.T, w *world) {
		var released heard
		l, link := w.linked(t, longTTL, redlatch.WithHooks(redlatch.Hooks{Released: released.add}))
		for _, result := range []error{nil, errors.New("no paper")} {
			for name, do := range doers() {
				before := len(released.all())
				err := do(t.Context(), l, fmt.Sprint(name, result), func(context.Context, *redlatch.Lock) error {
					link.refuse()
					return result
				})
				require.True(t, err == result, "%s: %v", name, err) //nolint:errorlint // it is the same error, not one that wraps it
				link.heal()
				require.Greater(t, len(released.all()), before)
				for _, e := range released.all()[before:] {
					require.ErrorIs(t, e.Err, redlatch.ErrUnavailable)
				}
			}
		}
		lock := mustLock(t, l, "k")
		link.refuse()
		requireOnly(t, lock.Unlock(t.Context()), redlatch.ErrUnavailable)
	})
}

// TestLockThatEndedBeforeFnIsReported: the error matches ErrLost, and ErrMaxHold if that ended the
// lock, and fn's error. With several keys it names each lock that was lost. It is no failure if fn
// has unlocked a lock itself.
func TestLockThatEndedBeforeFnIsReported(t *testing.T) {
	onEvery(t, everyLocker(), func(t *testing.T, w *world) {
		l, failure := w.locker(t), errors.New("no paper")
		for name, do := range doers() {
			for _, result := range []error{nil, failure} {
				for _, c := range []struct {
					opt redlatch.Option
					max bool
					end func(ctx context.Context) error
				}{
					{longTTL, false, func(ctx context.Context) error { return w.Direct.Del(ctx, "k").Err() }},
					{redlatch.WithMaxHold(2 * time.Second), true, func(ctx context.Context) error { <-ctx.Done(); return nil }},
				} {
					err := do(t.Context(), l, "k", func(ctx context.Context, _ *redlatch.Lock) error {
						require.NoError(t, c.end(ctx))
						return result
					}, c.opt)
					require.ErrorIs(t, err, redlatch.ErrLost, name)
					require.Equal(t, c.max, errors.Is(err, redlatch.ErrMaxHold), name)
					require.Equal(t, result != nil, errors.Is(err, failure), name)
					gone(t, w.Direct, "k", "k b", "k c")
				}
			}
		}
		err := redlatch.DoAll(t.Context(), l, []string{"a", "b", "c"}, func(ctx context.Context, locks []*redlatch.Lock) error {
			require.NoError(t, locks[1].Unlock(ctx))
			require.Same(t, locks[1].Err(), context.Cause(ctx), "the first lock that ends is the cause")
			require.NoError(t, w.Direct.Del(t.Context(), "a", "c").Err())
			return nil
		}, longTTL)
		requireOnly(t, err, redlatch.ErrLost)
		require.NotErrorIs(t, err, redlatch.ErrReleased)
		require.ErrorContains(t, err, `do all "a"`)
		require.ErrorContains(t, err, `do all "c"`)
	})
}

// TestPanicReleasesAll: a panic in fn releases all locks, and goes on to the caller. So does
// runtime.Goexit, which t.FailNow calls.
func TestPanicReleasesAll(t *testing.T) {
	onEvery(t, everyLocker(), func(t *testing.T, w *world) {
		calls := doers()
		calls["Lead"] = redlatch.Lead
		for name, do := range calls {
			require.PanicsWithValue(t, "jam", func() {
				_ = do(t.Context(), w.locker(t, longTTL), "k", func(context.Context, *redlatch.Lock) error { panic("jam") })
			}, name)
			gone(t, w.Direct, "k", "k b", "k c")
			over := make(chan struct{})
			go func() { // ends in fn
				defer close(over)
				_ = do(t.Context(), w.locker(t, longTTL), "k", func(context.Context, *redlatch.Lock) error { runtime.Goexit(); return nil })
			}()
			<-over
			gone(t, w.Direct, "k", "k b", "k c")
		}
	})
}

// TestHookThatPanicsLeavesNoLock: a hook of a call panics when the lock is granted, or when the
// call starts to wait. The panic goes on in the goroutine of its caller only.
func TestHookThatPanicsLeavesNoLock(t *testing.T) {
	onEvery(t, everyStrategy, func(t *testing.T, w *world) {
		l, other := w.locker(t, longTTL), w.locker(t)
		boom := func(context.Context, redlatch.Event) { panic("of the caller") }
		acquired, waiting := redlatch.WithHooks(redlatch.Hooks{Acquired: boom}), redlatch.WithHooks(redlatch.Hooks{Waiting: boom})
		require.Panics(t, func() { _, _ = l.TryLock(t.Context(), "k", acquired) })
		require.Panics(t, func() { _, _ = l.Lock(t.Context(), "k", acquired) })
		holder := mustLock(t, other, "k")
		require.Panics(t, func() { _, _ = l.Lock(t.Context(), "k", waiting) })
		require.NoError(t, holder.Unlock(t.Context()))
		lock, err := other.Lock(bounded(t), "k")
		require.NoError(t, err)
		require.NoError(t, lock.Unlock(t.Context()))
	})
}

// TestWaitingForOneselfIsRefused: fn of Do wants the key that it holds, by Lock, by DoAll, and as a
// leader. The error says so, and nothing waits. Another key is locked, and the same one once its
// lock has ended.
func TestWaitingForOneselfIsRefused(t *testing.T) {
	onEvery(t, everyLocker(), func(t *testing.T, w *world) {
		l, ran := w.locker(t), false
		err := redlatch.Do(t.Context(), l, "k", func(ctx context.Context, lock *redlatch.Lock) error {
			return redlatch.Do(ctx, l, "other", func(ctx context.Context, _ *redlatch.Lock) error {
				ran = true
				_, err := l.Lock(ctx, "k")
				require.ErrorContains(t, err, "wait for itself")
				require.ErrorContains(t, err, "pass a ctx that does not come from there")
				_, separate := l.Lock(ctx, "k", redlatch.WithTTL(time.Minute))
				all := redlatch.DoAll(ctx, l, []string{"another", "k"}, never[[]*redlatch.Lock](t))
				for _, err := range []error{err, separate, all, redlatch.Lead(ctx, l, "k", never[*redlatch.Lock](t))} {
					require.ErrorIs(t, err, redlatch.ErrInvalid)
				}
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

func TestInvalidCallsSendNothing(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		var sent atomic.Int64
		client := s.Client(t)
		client.AddHook(locktest.Count(&sent))
		l := newLocker(t, client)
		ended, end := context.WithCancel(t.Context())
		end()
		calls := doers()
		calls["Lead"] = redlatch.Lead
		for name, do := range calls {
			for what, c := range map[string]struct {
				ctx  context.Context //nolint:containedctx // of a call
				l    redlatch.Locker
				key  string
				opts []redlatch.Option
			}{
				"no Locker":                        {ctx: t.Context(), key: "k"},
				"a nil pointer as the Locker":      {ctx: t.Context(), l: (*redlatchtest.Locker)(nil), key: "k"},
				"no key":                           {ctx: t.Context(), l: l},
				"no ctx":                           {l: l, key: "k"},
				"a bad option":                     {t.Context(), l, "k", []redlatch.Option{redlatch.WithTTL(0)}},
				"a bad option, and ctx has ended":  {ended, l, "k", []redlatch.Option{redlatch.WithTTL(0)}},
				"a nil option":                     {t.Context(), l, "k", []redlatch.Option{nil}},
				"an option that the client cannot": {t.Context(), l, "k", []redlatch.Option{redlatch.WithReplicas(1, time.Hour)}},
				"an owner like a kept value":       {t.Context(), l, "k", []redlatch.Option{redlatch.WithOwner("~1")}},
			} {
				if what != "no key" || doingAll[name] == nil { // TestTexts has several keys of which one is empty
					require.ErrorIs(t, do(c.ctx, c.l, c.key, never[*redlatch.Lock](t), c.opts...), redlatch.ErrInvalid, "%s: %s", name, what)
				}
			}
		}
		require.Zero(t, sent.Load())
	})
}

// TestLostLeaderIsFollowed: the leader's lock is deleted again and again, and each time somebody
// leads again. So it is after an outage of Redis that is longer than the lock lasts, which
// Hooks.Trouble reports.
func TestLostLeaderIsFollowed(t *testing.T) {
	onEvery(t, everyLocker(), func(t *testing.T, w *world) {
		var troubles heard
		terms, over, left := make(chan *redlatch.Lock), make(chan struct{}), make(chan error)
		l, link := w.linked(t, redlatch.WithHooks(redlatch.Hooks{Trouble: troubles.add}))
		ctx, stop := context.WithCancelCause(t.Context())
		for range 2 {
			go func() { // ends with ctx
				left <- redlatch.Lead(ctx, l, "k", func(term context.Context, lock *redlatch.Lock) error {
					terms <- lock
					<-term.Done()
					if ctx.Err() == nil {
						over <- struct{}{}
					}
					return errors.New("ends the term and not Lead")
				})
			}()
		}
		for i := range 4 {
			lock := await(t, terms, "a term")
			if i == 3 {
				link.refuse()
			} else {
				require.NoError(t, w.Direct.Del(t.Context(), "k").Err())
			}
			await(t, over, "the lock is lost")
			require.ErrorIs(t, lock.Err(), redlatch.ErrLost)
		}
		time.Sleep(30 * time.Second)
		require.NotEmpty(t, troubles.all())
		link.heal()
		require.NoError(t, await(t, terms, "a term").Err())
		shutdown := errors.New("shutdown")
		stop(shutdown)
		for range 2 {
			err := await(t, left, "Lead returns")
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorIs(t, err, shutdown)
		}
		gone(t, w.Direct, "k")
	})
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

// TestLeadPauses: after a term the pause is 0.5 to 1 s, whatever fn returns. While Lock fails, it
// doubles up to 8 to 16 s.
func TestLeadPauses(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		away := slices.Repeat([]error{fmt.Errorf("proxy: %w", redlatch.ErrUnavailable)}, 8)
		l := &moody{Locker: newLocker(t, s.Client(t)), errs: away}
		ctx, cancel := context.WithCancel(t.Context())
		results := []error{errors.New("no paper"), redlatch.ErrInvalid, nil, nil}
		err := redlatch.Lead(ctx, l, "k", func(context.Context, *redlatch.Lock) error {
			result := results[0]
			switch results = results[1:]; len(results) {
			case 3:
				l.errs = away[:1]
			case 0:
				cancel()
			}
			return result
		})
		require.ErrorIs(t, err, context.Canceled)
		pauses := []int{1, 2, 4, 8, 16, 16, 16, 16, 1, 1, 1, 1} // eight errors, a term, an error, three terms
		require.Len(t, l.asked, len(pauses)+1)
		for i, most := range pauses {
			gap, longest := l.asked[i+1].Sub(l.asked[i]), time.Duration(most)*time.Second
			require.GreaterOrEqual(t, gap, longest/2, "gap %d", i)
			require.Less(t, gap, longest+10*time.Millisecond, "gap %d", i)
		}
	})
}

// TestLeadReportsWhatFnReturns: with its text, whatever it matches, and at most once a second for a
// key. An error that only says that fn's ctx has ended, or why, is none. ErrStop ends Lead, even if the lock
// was lost, and is not reported.
func TestLeadReportsWhatFnReturns(t *testing.T) {
	onEvery(t, withReaders(), func(t *testing.T, w *world) {
		var events heard
		var log bytes.Buffer
		l := w.locker(t, redlatch.WithOwner("api-7"), redlatch.WithHooks(redlatch.Hooks{Trouble: events.add}),
			redlatch.WithHooks(redlatch.SlogHooks(slog.New(slog.NewTextHandler(&log, nil)))))
		began, terms := time.Now(), 0
		held := mustLock(t, l, "other")
		err := redlatch.Lead(t.Context(), l, "k", func(ctx context.Context, lock *redlatch.Lock) error {
			switch terms++; {
			case terms == 1:
				_, err := l.TryLock(ctx, "other")
				return fmt.Errorf("no paper: %w", cmp.Or(err, redlatch.ErrNotAcquired))
			case terms == 2:
				require.NoError(t, lock.Unlock(ctx)) // its hooks are still there
				return errors.New("address in use")
			case terms == 3:
				_ = lock.Unlock(t.Context())
				<-ctx.Done()
				return fmt.Errorf("stopped: %w", ctx.Err())
			case terms == 4:
				time.Sleep(2 * time.Second) // an earlier report does not hide one of this
				require.NoError(t, w.Direct.FlushAll(t.Context()).Err())
				<-ctx.Done()
				return fmt.Errorf("stopped: %w", context.Cause(ctx))
			case terms < 20:
				return errors.New("address in use")
			}
			require.NoError(t, w.Direct.FlushAll(t.Context()).Err())
			return fmt.Errorf("enough: %w", redlatch.ErrStop)
		})
		require.NoError(t, err)
		require.Equal(t, 20, terms)
		all := events.all()
		require.NotEmpty(t, all)
		require.LessOrEqual(t, len(all), int(time.Since(began).Seconds())+1)
		require.ErrorContains(t, all[0].Err, "no paper: ")
		require.EqualError(t, all[1].Err, "address in use")
		for _, e := range all {
			require.Equal(t, []any{"k", "api-7", redlatch.CauseFunc, true, ""}, []any{e.Key, e.Owner, e.Cause, e.Lead, e.Node})
			require.NotErrorIs(t, e.Err, redlatch.ErrUnavailable)
			require.NotContains(t, e.Err.Error(), "stopped")
		}
		require.Equal(t, len(all), strings.Count(log.String(), `level=WARN msg="leader failed"`))
		require.Regexp(t, `msg="leader failed" strategy=[a-z]+ key=k owner=api-7 lead=true .*cause=fn error="no paper: .*"`, log.String())
		_ = held.Unlock(t.Context())
	})
}

// TestLeadEndsWithWhatRetryingCannotFix: a key of another type, a proxy that refuses scripts, and
// what a Locker refuses.
func TestLeadEndsWithWhatRetryingCannotFix(t *testing.T) {
	onEvery(t, everyLocker(), func(t *testing.T, w *world) {
		require.NoError(t, w.Direct.RPush(t.Context(), "k", "data").Err())
		err := redlatch.Lead(bounded(t), w.locker(t), "k", never[*redlatch.Lock](t))
		require.ErrorContains(t, err, "WRONGTYPE")
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, int64(1), w.Direct.LLen(t.Context(), "k").Val())
		l, link := w.linked(t)
		link.answer("ERR bad lua script for redis cluster, all the keys that the script uses should be passed using the KEYS array")
		err = redlatch.Lead(bounded(t), l, "k2", never[*redlatch.Lock](t))
		require.ErrorContains(t, err, "this proxy checks scripts")
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		for _, final := range []error{errors.ErrUnsupported, redlatch.ErrInvalid} {
			wrapper := &moody{Locker: w.locker(t), errs: []error{fmt.Errorf("no: %w", final)}}
			require.ErrorIs(t, redlatch.Lead(bounded(t), wrapper, "k", never[*redlatch.Lock](t)), final)
			require.Len(t, wrapper.asked, 1)
		}
	})
}

// TestStoppedLeadSaysWhy: if Lock has failed because of Redis, and ctx ends during the pause, the
// error has both.
func TestStoppedLeadSaysWhy(t *testing.T) {
	onEvery(t, everyLocker(), func(t *testing.T, w *world) {
		l, link := w.linked(t)
		link.refuse()
		brief, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		err := redlatch.Lead(brief, l, "k", never[*redlatch.Lock](t))
		requireOnly(t, err, redlatch.ErrUnavailable)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

// TestEventsOfLeadSaySo: all hooks of the Locker and of the call learn that a call is one of Lead,
// which may wait or hold for hours, and so do those that a wrapper adds. Other calls on the key are
// not marked, and share the line.
func TestEventsOfLeadSaySo(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		var ofLocker, ofCall, ofWrapper marks
		client := s.Client(t)
		link := linkOf(t, client)
		inside := newLocker(t, client, redlatch.WithHooks(ofLocker.hooks()))
		l := &wrapper{inside, redlatch.WithHooks(ofWrapper.hooks())}
		holder := mustLock(t, newLocker(t, s.Client(t)), "k")
		others := make(chan *redlatch.Lock, 1)
		locking(t, others, inside, "k")
		time.Sleep(time.Second) // it is the first in the line
		ctx, cancel := context.WithCancel(t.Context())
		terms, over := make(chan *redlatch.Lock), make(chan error)
		go func() { // ends with ctx
			over <- redlatch.Lead(ctx, l, "k", func(ctx context.Context, lock *redlatch.Lock) error {
				terms <- lock
				<-ctx.Done()
				return nil
			}, redlatch.WithHooks(ofCall.hooks()))
		}()
		time.Sleep(time.Second)
		st, err := inside.Inspect(t.Context(), "k")
		require.NoError(t, err)
		require.Equal(t, 1, st.Waiters, "one line")
		require.NoError(t, holder.Unlock(t.Context()))
		require.NoError(t, await(t, others, "its turn").Unlock(t.Context()))
		await(t, terms, "a term")
		time.Sleep(10 * time.Second) // renewed
		link.refuse()
		time.Sleep(20 * time.Second)
		link.heal()
		await(t, terms, "the next term")
		cancel()
		require.ErrorIs(t, await(t, over, "Lead ends"), context.Canceled)
		synctest.Wait()

		of := []string{"Acquired", "Lost", "Released", "RenewFailed", "Renewed", "Trouble", "Waiting"}
		require.Equal(t, of, ofCall.names(true))
		require.Equal(t, of, ofLocker.names(true))
		require.Equal(t, of, ofWrapper.names(true))
		require.Empty(t, ofCall.names(false))
		require.Equal(t, []string{"Acquired", "Released", "Waiting"}, ofLocker.names(false))
	})
}

// wrapper adds an option to each call of Lock.
type wrapper struct {
	redlatch.Locker
	opt redlatch.Option
}

func (w *wrapper) Lock(ctx context.Context, key string, opts ...redlatch.Option) (*redlatch.Lock, error) {
	return w.Locker.Lock(ctx, key, append(slices.Clip(opts), w.opt)...)
}

// marks has the names of the hooks that were called, by whether the event was one of Lead.
type marks struct {
	mu sync.Mutex // guards by
	by map[bool]map[string]bool
}

func (m *marks) hooks() redlatch.Hooks {
	as := func(name string) func(context.Context, redlatch.Event) {
		return func(_ context.Context, e redlatch.Event) {
			m.mu.Lock()
			defer m.mu.Unlock()
			if m.by == nil {
				m.by = map[bool]map[string]bool{true: {}, false: {}}
			}
			m.by[e.Lead][name] = true
		}
	}
	return redlatch.Hooks{
		Acquired: as("Acquired"), Waiting: as("Waiting"), Renewed: as("Renewed"), RenewFailed: as("RenewFailed"),
		Lost: as("Lost"), Released: as("Released"), Trouble: as("Trouble"),
	}
}

// names returns those of the events of Lead, or of others, sorted.
func (m *marks) names(lead bool) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.by[lead]))
}

// TestErrorNamesTheCallThatWasMade: and neither Lock nor Unlock, which that call has made. The name
// of the package stands once in it.
func TestErrorNamesTheCallThatWasMade(t *testing.T) {
	onEvery(t, everyLocker(), func(t *testing.T, w *world) {
		l, link := w.linked(t, redlatch.WithoutRenewal())
		calls := doers()
		calls["Lead"] = redlatch.Lead
		op := map[string]string{"Do": "do", "TryDo": "try do", "DoAll": "do all", "TryDoAll": "try do all", "Lead": "lead"}
		named := func(err error, name, rest string) {
			t.Helper()
			require.Regexp(t, `^redlatch: `+op[name]+` "k": `+rest, err.Error())
			require.Equal(t, 1, strings.Count(err.Error(), "redlatch: "), err)
			require.NotRegexp(t, `lock "`, err.Error())
		}
		for name, do := range calls {
			brief := func() context.Context {
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				t.Cleanup(cancel)
				return ctx
			}
			holder := mustLock(t, w.locker(t), "k")
			named(do(brief(), l, "k", never[*redlatch.Lock](t)), name, "(gave up waiting: context deadline exceeded: the last attempt: )?held by (another owner|\"[^ ]+\")")
			require.NoError(t, holder.Unlock(t.Context()))
			link.refuse()
			named(do(brief(), l, "k", never[*redlatch.Lock](t)), name, ".*connection refused$")
			link.heal()
			time.Sleep(5 * time.Second) // the last attempt was under way, and may still be granted and released
			if name == "Lead" {
				continue
			}
			for _, result := range []func(context.Context) error{
				func(context.Context) error { return nil }, context.Cause,
				func(ctx context.Context) error { return fmt.Errorf("paying: %w", context.Cause(ctx)) },
			} {
				err := do(t.Context(), l, "k", func(ctx context.Context, _ *redlatch.Lock) error {
					<-ctx.Done()
					return result(ctx)
				})
				requireOnly(t, err, redlatch.ErrLost)
				if strings.HasPrefix(name, "Do") && name != "DoAll" {
					named(err, name, "(paying: )?lock lost: expired$")
				}
			}
		}
	})
}

// TestLeadUnderALostLockSaysSoOnce: the ctx of Lead is that of another lock, which is lost.
func TestLeadUnderALostLockSaysSoOnce(t *testing.T) {
	onEvery(t, everyLocker(), func(t *testing.T, w *world) {
		outer := mustLock(t, w.locker(t, redlatch.WithoutRenewal()), "outer")
		mustLock(t, w.locker(t), "k")
		err := redlatch.Lead(outer.Context(t.Context()), w.locker(t), "k", never[*redlatch.Lock](t))
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		require.NotErrorIs(t, err, redlatch.ErrLost, "that is about another lock")
		require.Regexp(t, `^redlatch: lead "k": gave up waiting: context canceled: lock lost: expired: the last attempt: held by (another owner|".+:[0-9]+")`, err.Error())
		require.Equal(t, 1, strings.Count(err.Error(), "gave up waiting"), err)
	})
}
