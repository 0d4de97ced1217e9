package behavior_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/locktest"
)

// TestMinHoldKeepsOthersOut: nobody else gets the lock before the minimum hold has passed since the
// grant, or the time of UnlockAfter since the call. A waiter is handed the lock then. A release
// after that time deletes the key at once. The crash of a holder does not shorten the hold.
func TestMinHoldKeepsOthersOut(t *testing.T) {
	onEvery(t, keeping, func(t *testing.T, w *world) {
		const hold = 30 * time.Second
		for name, c := range map[string]struct {
			opts   []redlatch.Option
			unlock func(lock *redlatch.Lock) error
		}{
			"WithMinHold": {[]redlatch.Option{redlatch.WithMinHold(hold)}, func(lock *redlatch.Lock) error { return lock.Unlock(t.Context()) }},
			"UnlockAfter": {nil, func(lock *redlatch.Lock) error { return lock.UnlockAfter(t.Context(), hold) }},
		} {
			begin := time.Now()
			lock := mustLock(t, w.locker(t), "k", c.opts...)
			require.NoError(t, c.unlock(lock))
			require.ErrorIs(t, lock.Err(), redlatch.ErrReleased)
			require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrReleased)
			_, err := w.locker(t).TryLock(t.Context(), "k")
			requireOnly(t, err, redlatch.ErrNotAcquired)
			next, err := w.locker(t).Lock(t.Context(), "k")
			require.NoError(t, err)
			require.GreaterOrEqual(t, time.Since(begin), hold)
			late := 10 * time.Millisecond
			if w.name == "Redlock" { // its waiters poll
				late = 2 * time.Second
			}
			require.Less(t, time.Since(begin), hold+late, name)
			require.Greater(t, next.Fence(), lock.Fence())
			require.NoError(t, next.Unlock(t.Context()))
			onlyFences(t, w.Direct)
		}
		lock := mustLock(t, w.locker(t), "k", redlatch.WithMinHold(hold))
		time.Sleep(hold)
		require.NoError(t, lock.Unlock(t.Context()))
		require.Zero(t, w.Direct.Exists(t.Context(), "k").Val())

		crashed := mustLock(t, w.locker(t), "k", redlatch.WithTTL(time.Second), redlatch.WithMinHold(time.Hour))
		require.Greater(t, w.Direct.PTTL(t.Context(), "k").Val(), 59*time.Minute)
		require.NoError(t, crashed.Unlock(t.Context()))
	})
}

// TestMinHoldOfCenturies lasts for a hundred years.
func TestMinHoldOfCenturies(t *testing.T) {
	onEvery(t, keeping, func(t *testing.T, w *world) {
		const century = 100 * 365 * 24 * time.Hour
		lock := mustLock(t, w.locker(t), "k", redlatch.WithMinHold(math.MaxInt64), redlatch.WithMaxHold(2*century))
		require.NoError(t, lock.Unlock(t.Context()))
		st, err := w.locker(t).Inspect(t.Context(), "k")
		require.NoError(t, err)
		require.True(t, st.Kept)
		require.InDelta(t, century, st.TTL, float64(time.Minute))
	})
}

// TestKeptKeyIsNobodysLock: after Unlock, nobody can acquire, adopt or extend what the minimum hold
// keeps, by the token or by the value of the key. If somebody else has overwritten it, the end of
// the hold leaves that alone.
func TestKeptKeyIsNobodysLock(t *testing.T) {
	onEvery(t, keeping, func(t *testing.T, w *world) {
		l := w.locker(t)
		lock := mustLock(t, w.locker(t, redlatch.WithMinHold(time.Minute)), "k", redlatch.WithOwner("api-7"))
		other, err := l.Adopt(t.Context(), "k", lock.Token())
		require.NoError(t, err)
		require.NoError(t, lock.Unlock(t.Context()))

		value := w.Direct.Get(t.Context(), "k").Val()
		if w.name == "Semaphore" || w.name == "Write" {
			value = w.Direct.ZRange(t.Context(), "k", 0, 0).Val()[0]
		}
		require.NotEqual(t, string(lock.Token()), value)
		require.ErrorIs(t, other.Extend(t.Context(), time.Minute), redlatch.ErrLost)
		for _, token := range []redlatch.Token{lock.Token(), redlatch.Token(value)} {
			_, err = l.Adopt(t.Context(), "k", token)
			requireOnly(t, err, redlatch.ErrLost)
		}
		st, err := l.Inspect(t.Context(), "k")
		require.NoError(t, err)
		require.Greater(t, st.TTL, 50*time.Second)
		st.TTL = 0
		require.Equal(t, redlatch.Status{Kept: true}, st)

		require.NoError(t, w.Direct.Set(t.Context(), "k", "another", 0).Err())
		time.Sleep(2 * time.Minute)
		require.Equal(t, "another", w.Direct.Get(t.Context(), "k").Val())
		lost := mustLock(t, l, "k2", redlatch.WithMinHold(time.Minute))
		require.NoError(t, w.Direct.Set(t.Context(), "k2", "another", 0).Err())
		requireOnly(t, lost.Unlock(t.Context()), redlatch.ErrLost)
		require.Equal(t, "another", w.Direct.Get(t.Context(), "k2").Val())
	})
}

// TestMinHoldOutlastsAnOutage: replies are lost, or Redis hangs while the lock is released. The key
// is kept all the same, and no longer than for the minimum hold once Redis has the release.
func TestMinHoldOutlastsAnOutage(t *testing.T) {
	onEvery(t, keeping, func(t *testing.T, w *world) {
		const hold = 20 * time.Second
		l, link := w.linked(t, redlatch.WithOpTimeout(time.Second), redlatch.WithMinHold(hold), redlatch.WithTTL(time.Hour))
		for name, c := range map[string]struct {
			inject func()
			want   error
		}{"a lost reply": {func() { link.lose(1) }, nil}, "silence": {link.hang, redlatch.ErrUnavailable}} {
			begin := time.Now()
			lock := mustLock(t, l, "k")
			c.inject()
			require.ErrorIs(t, lock.Unlock(t.Context()), c.want, name)
			time.Sleep(5 * time.Second)
			link.heal()
			next, err := w.locker(t).Lock(t.Context(), "k")
			require.NoError(t, err)
			require.GreaterOrEqual(t, time.Since(begin), hold, name)
			require.Less(t, time.Since(begin), 2*hold, name)
			require.NoError(t, next.Unlock(t.Context()))
		}
	})
}

func TestMinHoldFitsItsLock(t *testing.T) {
	onEvery(t, everyStrategy, func(t *testing.T, w *world) {
		for text, opts := range map[string][]redlatch.Option{
			"WithMinHold(1µs): below 1ms":                      {redlatch.WithMinHold(time.Microsecond)},
			"WithMinHold(1m0s): longer than WithMaxHold(1s)":   {redlatch.WithMinHold(time.Minute), redlatch.WithMaxHold(time.Second)},
			"WithMinHold(1s): legacysetnx does not support it": {redlatch.WithMinHold(time.Second)},
		} {
			if _, err := w.make(w.Direct, opts...); w.name == "LegacySetNX" || len(opts) > 1 {
				requireOnly(t, err, redlatch.ErrInvalid)
				if w.name == "LegacySetNX" {
					text = "WithMinHold("
				}
				require.ErrorContains(t, err, text)
			}
		}
	})
}

// TestWhatNeverBeganKeepsNobodyOut: a lock was granted, and no caller got it, or fn was not called.
// So it has no minimum hold.
func TestWhatNeverBeganKeepsNobodyOut(t *testing.T) {
	panics := func(context.Context, redlatch.Event) { panic("hook") }
	kinds := maps.Clone(keeping)
	kinds["Migration"] = everyLocker()["Migration"]
	onEvery(t, kinds, func(t *testing.T, w *world) {
		l, free := w.locker(t, redlatch.WithMinHold(time.Hour)), []string{"k", "k b", "k c"}
		calls := doers()
		calls["Lead"] = redlatch.Lead
		for name, do := range calls {
			ctx, end := context.WithCancel(bounded(t))
			err := do(ctx, l, "k", never[*redlatch.Lock](t), on(acquired, "k", end))
			require.ErrorIs(t, err, context.Canceled, name)
			requireFree(t, w, free...)
			require.PanicsWithValue(t, "hook", func() {
				_ = do(bounded(t), l, "k", never[*redlatch.Lock](t), redlatch.WithHooks(redlatch.Hooks{Acquired: panics}))
			}, name)
			requireFree(t, w, free...)
		}
		for name, do := range doingAll {
			last := "k c"
			require.PanicsWithValue(t, "hook", func() {
				_ = do(bounded(t), l, free, never[[]*redlatch.Lock](t), on(acquired, last, func() { panic("hook") }))
			}, name)
			requireFree(t, w, free...)
			other := mustLock(t, w.locker(t), last)
			brief, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			require.ErrorIs(t, do(brief, l, free, never[[]*redlatch.Lock](t)), redlatch.ErrNotAcquired, name)
			cancel()
			requireFree(t, w, free[:2]...)
			require.NoError(t, other.Unlock(t.Context()))
			err := do(bounded(t), l, free, never[[]*redlatch.Lock](t), on(acquired, last, func() {
				require.NoError(t, w.Direct.Del(t.Context(), "k").Err())
				time.Sleep(20 * time.Minute) // until the loss is noticed, a third of the TTL later
			}))
			require.ErrorIs(t, err, redlatch.ErrLost, name)
			requireFree(t, w, free...)
		}
	})
}

// requireFree requires that nobody holds keys, or keeps others out of them.
func requireFree(t *testing.T, w *world, keys ...string) {
	t.Helper()
	for _, key := range keys {
		lock, err := w.locker(t).TryLock(t.Context(), key)
		require.NoError(t, err)
		require.NoError(t, lock.Unlock(t.Context()))
	}
}

// TestHookThatPanicsAsItsCallIsServedKeepsNobodyOut: the hook says that the call waits.
func TestHookThatPanicsAsItsCallIsServedKeepsNobodyOut(t *testing.T) {
	onEvery(t, keeping, func(t *testing.T, w *world) {
		holder := mustLock(t, w.locker(t), "k")
		l := w.locker(t, redlatch.WithMinHold(time.Hour), redlatch.WithOwner("served"))
		require.PanicsWithValue(t, "hook", func() {
			_, _ = l.Lock(bounded(t), "k", redlatch.WithHooks(redlatch.Hooks{Waiting: func(context.Context, redlatch.Event) {
				require.NoError(t, holder.Unlock(t.Context()))
				eventually(t, "served", func() bool {
					st, err := w.locker(t).Inspect(t.Context(), "k")
					return err == nil && st.Owner == "served"
				})
				time.Sleep(100 * time.Millisecond) // of the bubble
				panic("hook")
			}}))
		})
		requireFree(t, w, "k")
	})
}

// TestKeptIsToldFromHeld: by Inspect, by a refusal, and after a wait that ctx ended. Since says when
// the holder began to ask, also if it is a caller of the same Locker.
func TestKeptIsToldFromHeld(t *testing.T) {
	onEvery(t, keeping, func(t *testing.T, w *world) {
		l, begin := w.locker(t, redlatch.WithOwner("api-7")), time.Now().Truncate(time.Millisecond)
		lock := mustLock(t, l, "k")
		asked := time.Now()
		require.NoError(t, lock.Err())
		time.Sleep(time.Second)
		refusals := func() (all []*redlatch.HeldError) {
			for _, l := range []redlatch.Locker{l, w.locker(t)} {
				_, refused := l.TryLock(t.Context(), "k")
				for _, err := range []error{refused, locktest.WaitInVain(t, l, "k")} {
					var held *redlatch.HeldError
					require.ErrorAs(t, err, &held)
					all = append(all, held)
				}
			}
			return all
		}
		st := inspected(t, l)
		require.False(t, st.Kept)
		for _, held := range refusals() {
			require.False(t, held.Kept)
			require.Equal(t, "api-7", held.Owner)
			require.WithinRange(t, held.Since, begin, asked)
			require.Equal(t, st.Since, held.Since)
			require.Positive(t, held.TTL)
		}
		require.NoError(t, lock.UnlockAfter(t.Context(), time.Hour))
		st = inspected(t, l)
		require.Equal(t, []any{false, true, 0}, []any{st.Held, st.Kept, st.Holders})
		for _, held := range refusals() {
			require.True(t, held.Kept)
			require.Zero(t, held.Since)
			require.Empty(t, held.Owner)
			require.Greater(t, held.TTL, 50*time.Minute)
		}
	})
}

// TestKeptPermitBesideOthersIsNotKept: somebody holds the key, and the refusal names whom.
func TestKeptPermitBesideOthersIsNotKept(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		for name, c := range map[string]func() (holder, refused redlatch.Locker){
			"a permit in its min hold, which ends first": func() (holder, refused redlatch.Locker) {
				l := made(redlatch.NewSemaphore(s.Client(t), 2, redlatch.WithKeyPrefix("first:"), redlatch.WithOwner("holder")))
				require.NoError(t, mustLock(t, l, "k").UnlockAfter(t.Context(), 5*time.Second))
				return l, l
			},
			"a reader that keeps writers out, for longest": func() (holder, refused redlatch.Locker) {
				read, write, err := redlatch.NewReadWrite(s.Client(t), redlatch.WithKeyPrefix("last:"), redlatch.WithOwner("holder"))
				require.NoError(t, err)
				require.NoError(t, mustLock(t, read, "k").UnlockAfter(t.Context(), time.Hour))
				return read, write
			},
		} {
			holder, refused := c()
			lock := mustLock(t, holder, "k")
			_, err := refused.TryLock(t.Context(), "k")
			var held *redlatch.HeldError
			require.ErrorAs(t, err, &held, name)
			require.Equal(t, []any{false, "holder", "k"}, []any{held.Kept, held.Owner, held.Key}, name)
			ttl := held.TTL // of the permit that is kept: that of the holder has 10 s
			st := inspected(t, refused)
			require.Equal(t, []any{true, false, 1, 1}, []any{st.Held, st.Kept, st.Holders, len(st.Holding)}, name)
			require.NoError(t, lock.Unlock(t.Context()))
			_, err = refused.TryLock(t.Context(), "k")
			if name[:8] == "a reader" {
				require.ErrorAs(t, err, &held, name)
				require.True(t, held.Kept)
				require.Greater(t, ttl, 50*time.Minute)
			} else {
				require.NoError(t, err)
				require.Less(t, ttl, 6*time.Second)
			}
		}
	})
}

// TestMigrationReportsAHolderBeforeAKeptKey: of its two sides, the one that somebody holds, then
// one that is kept.
func TestMigrationReportsAHolderBeforeAKeptKey(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		from, to := newLocker(t, s.Client(t)), newLocker(t, s.Client(t), redlatch.WithKeyPrefix("v2:"))
		for i, sides := range [][2]redlatch.Locker{{from, to}, {to, from}} {
			key := fmt.Sprint("k", i)
			m := made(redlatch.NewMigration(from, to))
			require.NoError(t, mustLock(t, sides[0], key).UnlockAfter(t.Context(), time.Hour))
			seen := func() []any {
				st, err := m.Inspect(t.Context(), key)
				require.NoError(t, err)
				return []any{st.Held, st.Kept, st.Holders}
			}
			require.Equal(t, []any{false, true, 0}, seen())
			lock := mustLock(t, sides[1], key)
			require.Equal(t, []any{true, false, 1}, seen())
			require.NoError(t, lock.Unlock(t.Context()))
			require.Equal(t, []any{false, true, 0}, seen())
			require.NoError(t, redlatch.Forget(t.Context(), m, key))
			require.Equal(t, []any{false, false, 0}, seen())
		}
	})
}

// wrapped is a Locker that wraps another one.
type wrapped struct{ redlatch.Locker }

func (w wrapped) Unwrap() redlatch.Locker { return w.Locker }

// TestForgetEndsAMinHold: and only that, also behind a wrapper. A waiter gets the lock at once.
func TestForgetEndsAMinHold(t *testing.T) {
	kinds := maps.Clone(keeping)
	kinds["Migration"] = everyLocker()["Migration"]
	onEvery(t, kinds, func(t *testing.T, w *world) {
		ctx, l := t.Context(), w.locker(t)
		require.NoError(t, redlatch.Forget(ctx, l, "k"), "it is free")
		lock := mustLock(t, l, "k", longTTL)
		require.NoError(t, redlatch.Forget(ctx, l, "k"), "it is held")
		require.NoError(t, lock.Extend(ctx, time.Hour))
		for _, forgets := range []redlatch.Locker{w.locker(t), wrapped{wrapped{l}}} {
			require.NoError(t, lock.UnlockAfter(ctx, time.Hour))
			got := make(chan *redlatch.Lock, 1)
			locking(t, got, w.locker(t), "k")
			time.Sleep(time.Minute)
			require.Empty(t, got)
			require.NoError(t, redlatch.Forget(ctx, forgets, "k"))
			begin := time.Now()
			lock = await(t, got, "the key")
			if _, hands := queues[w.name]; hands {
				require.Less(t, time.Since(begin), 100*time.Millisecond)
			}
		}
		require.NoError(t, lock.Unlock(ctx))
		onlyFences(t, w.Direct)
	})
}

// TestForgetEndsAllMinHolds of a semaphore, also more than Inspect shows.
func TestForgetEndsAllMinHolds(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		ctx, l := t.Context(), locktest.Semaphore(t, s.Client(t), 250)
		for range 250 {
			require.NoError(t, mustLock(t, l, "k").UnlockAfter(ctx, time.Hour))
		}
		_, err := l.TryLock(ctx, "k")
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		require.NoError(t, redlatch.Forget(ctx, l, "k"))
		onlyFences(t, s.Direct)
	})
}

// TestForgetSaysWhatItCannotReach: a Locker that hides those of this package.
func TestForgetSaysWhatItCannotReach(t *testing.T) {
	onEvery(t, everyLocker(), func(t *testing.T, w *world) {
		var none context.Context
		l, link := w.linked(t)
		require.ErrorIs(t, redlatch.Forget(t.Context(), fake{l, nil}, "k"), errors.ErrUnsupported)
		requireOnly(t, redlatch.Forget(t.Context(), nil, "k"), redlatch.ErrInvalid)
		requireOnly(t, redlatch.Forget(t.Context(), l, ""), redlatch.ErrInvalid)
		requireOnly(t, redlatch.Forget(none, l, "k"), redlatch.ErrInvalid)
		require.NoError(t, redlatch.Forget(t.Context(), l, "k"), "it has no min hold")
		link.refuse()
		requireOnly(t, redlatch.Forget(t.Context(), l, "k"), redlatch.ErrUnavailable)
	})
}

// TestReleaseOfAMinHoldWithoutAnAnswerLeavesNoGhost: the release has no answer, and is sent again when Redis is back. Until then the Locker sees its
// own token, and does not take it for a ghost.
func TestReleaseOfAMinHoldWithoutAnAnswerLeavesNoGhost(t *testing.T) {
	onEvery(t, queues, func(t *testing.T, w *world) {
		for _, away := range []time.Duration{1500 * time.Millisecond, 3 * time.Second} {
			l, link := w.linked(t, redlatch.WithTTL(time.Minute), redlatch.WithOpTimeout(time.Second))
			lock := mustLock(t, l, "k")
			next := waitInLine(t, w.locker(t), "k")
			begun := time.Now()
			link.refuse()
			require.Error(t, lock.UnlockAfter(t.Context(), 30*time.Second))
			time.Sleep(away - time.Since(begun))
			link.heal()
			for range 50 {
				_, err := l.TryLock(t.Context(), "k")
				require.ErrorIs(t, err, redlatch.ErrNotAcquired)
				time.Sleep(50 * time.Millisecond)
			}
			lock = <-next
			require.GreaterOrEqual(t, time.Since(begun), 30*time.Second)
			require.NoError(t, lock.Unlock(t.Context()))
		}
	})
}
