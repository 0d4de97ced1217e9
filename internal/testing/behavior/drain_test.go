package behavior_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/locktest"
	"github.com/redlatch/redlatch/redlatchtest"
)

// drained requires that Drain returns nil, and how long that takes.
func drained(t *testing.T, l redlatch.Locker) time.Duration {
	t.Helper()
	began := time.Now()
	require.NoError(t, redlatch.Drain(bounded(t), l))
	return time.Since(began)
}

// nothingIsLeft requires that Redis has nothing of a lock now.
func nothingIsLeft(t *testing.T, w *world) {
	t.Helper()
	for _, key := range w.Direct.Keys(t.Context(), "*").Val() {
		require.True(t, isFence(key), key)
	}
}

// TestDrainReturnsWhenNothingIsUnderWay: at once, also beside a lock that is held and a call that waits.
func TestDrainReturnsWhenNothingIsUnderWay(t *testing.T) {
	onEvery(t, everyLocker(), func(t *testing.T, w *world) {
		l := w.locker(t)
		require.Zero(t, drained(t, l))
		lock := mustLock(t, l, "k", longTTL)
		require.Less(t, drained(t, l), time.Second)
		require.NoError(t, lock.Unlock(t.Context()))
		require.Less(t, drained(t, l), time.Second)
		nothingIsLeft(t, w)
	})
}

// TestDrainWaitsForReleases: of an Unlock without a reply, of a TryLock that was given up, and of a
// wait that was. If ctx ends first, the error says how many are left. When Drain returns nil, nothing
// is left in Redis.
func TestDrainWaitsForReleases(t *testing.T) {
	onEvery(t, everyLocker(), func(t *testing.T, w *world) {
		for what, leave := range map[string]func(t *testing.T, l redlatch.Locker, link *link){
			"an Unlock": func(t *testing.T, l redlatch.Locker, link *link) {
				lock := mustLock(t, l, "k", longTTL)
				link.hang()
				requireOnly(t, lock.Unlock(t.Context()), redlatch.ErrUnavailable)
			},
			"a TryLock": func(t *testing.T, l redlatch.Locker, link *link) {
				link.hang()
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				_, err := l.TryLock(ctx, "k", longTTL)
				require.ErrorIs(t, err, context.DeadlineExceeded)
			},
			"a Lock": func(t *testing.T, l redlatch.Locker, link *link) {
				link.hang()
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				_, err := l.Lock(ctx, "k", longTTL)
				require.ErrorIs(t, err, context.DeadlineExceeded)
			},
		} {
			l, link := w.linked(t)
			warm(t, l)
			leave(t, l, link)
			brief, cancel := context.WithTimeoutCause(t.Context(), 10*time.Second, errors.New("shutdown"))
			err := redlatch.Drain(brief, l)
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded, what)
			require.Regexp(t, `^redlatch: drain: context deadline exceeded: shutdown: commands under way: [1-9]`, err.Error(), what)
			var of *redlatch.Error
			require.ErrorAs(t, err, &of, what)
			link.heal()
			require.Less(t, drained(t, l), 30*time.Second, what)
			nothingIsLeft(t, w)
		}
	})
}

// TestDrainWaitsForKeptKeys: those that this process hands on. They are free when Drain returns.
func TestDrainWaitsForKeptKeys(t *testing.T) {
	onEvery(t, keeping, func(t *testing.T, w *world) {
		l := w.locker(t)
		require.NoError(t, mustLock(t, l, "k").UnlockAfter(t.Context(), 5*time.Second))
		took := drained(t, l)
		if w.name == "Redlock" {
			require.Less(t, took, time.Second, "Redis ends it")
			return
		}
		require.GreaterOrEqual(t, took, 4900*time.Millisecond)
		require.Less(t, took, 5100*time.Millisecond, "Redis would keep it for 100 ms longer")
		nothingIsLeft(t, w)
		require.NoError(t, mustLock(t, l, "k").UnlockAfter(t.Context(), time.Hour))
		require.Less(t, drained(t, l), time.Second, "Redis ends it")
	})
}

// TestDrainGoesThroughDecorators: as Forget does.
func TestDrainGoesThroughDecorators(t *testing.T) {
	onEvery(t, everyLocker(), func(t *testing.T, w *world) {
		l, link := w.linked(t)
		lock := mustLock(t, l, "k", longTTL)
		link.hang()
		require.Error(t, lock.Unlock(t.Context()))
		for _, outer := range []redlatch.Locker{wrapped{l}, wrapped{wrapped{l}}} {
			brief, cancel := context.WithTimeout(t.Context(), time.Second)
			require.ErrorIs(t, redlatch.Drain(brief, outer), context.DeadlineExceeded)
			cancel()
		}
		require.ErrorIs(t, redlatch.Drain(t.Context(), &moody{Locker: l}), errors.ErrUnsupported)
		require.ErrorIs(t, redlatch.Drain(t.Context(), nil), redlatch.ErrInvalid)
		require.ErrorIs(t, redlatch.Drain(t.Context(), (*redlatchtest.Locker)(nil)), redlatch.ErrInvalid)
		require.ErrorIs(t, redlatch.Drain(nil, l), redlatch.ErrInvalid) //nolint:staticcheck // a caller may pass nil
		link.heal()
		drained(t, wrapped{l})
	})
	locktest.InBubble(t, func(t *testing.T, _ *locktest.Site) { require.Zero(t, drained(t, redlatchtest.NewLocker(t))) })
}

// TestDrainOfABusyLocker: 60 callers of six keys are told to stop, by the end of their ctx, at any
// moment. When all have returned and Drain has, Redis has nothing of theirs.
func TestDrainOfABusyLocker(t *testing.T) {
	onEvery(t, everyLocker(), func(t *testing.T, w *world) {
		for round := range 10 {
			l, link := w.linked(t)
			link.delay(time.Duration(round) * time.Millisecond)
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan struct{})
			const callers = 60
			for i := range callers {
				go func() { // ends with ctx
					defer func() { ended <- struct{}{} }()
					for ctx.Err() == nil {
						_ = redlatch.Do(ctx, l, string(rune('a'+i%6)), func(ctx context.Context, _ *redlatch.Lock) error {
							time.Sleep(time.Millisecond)
							return ctx.Err()
						})
					}
				}()
			}
			time.Sleep(300 * time.Millisecond)
			stop()
			for range callers {
				<-ended
			}
			drained(t, l)
			link.heal()
			nothingIsLeft(t, w)
		}
	})
}
