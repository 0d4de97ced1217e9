package behavior_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
)

// TestZeroTakesADefaultBack: a call of a Locker that bounds its waits and holds has none of these.
func TestZeroTakesADefaultBack(t *testing.T) {
	onEvery(t, withSeveral(), func(t *testing.T, w *world) {
		l := w.locker(t, redlatch.WithMaxHold(5*time.Second), redlatch.WithMaxWait(2*time.Second))
		lock := mustLock(t, l, "held", redlatch.WithMaxHold(0))
		time.Sleep(time.Minute)
		require.NoError(t, lock.Err())
		require.NoError(t, lock.Unlock(t.Context()))

		w.taken(t, "k")
		for name, wait := range waitsFor {
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
			began := time.Now()
			err := wait(ctx, l, redlatch.WithMaxWait(0))
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded, name)
			require.WithinDuration(t, began.Add(4*time.Second), time.Now(), time.Millisecond, name)
		}
		stop := redlatch.ErrStop
		require.NoError(t, redlatch.Lead(t.Context(), l, "led", func(context.Context, *redlatch.Lock) error { return stop }, redlatch.WithMaxWait(0)))

		for _, opt := range []redlatch.Option{
			redlatch.WithMaxHold(-1), redlatch.WithMinHold(-1), redlatch.WithMaxWait(-1),
			redlatch.WithMaxHold(time.Millisecond - 1), redlatch.WithMinHold(time.Millisecond - 1),
		} {
			_, err := l.TryLock(t.Context(), "free", opt)
			requireOnly(t, err, redlatch.ErrInvalid)
		}
	})
}

// TestZeroTakesAMinHoldBack: the key is free after Unlock, and the lease is not longer for it.
func TestZeroTakesAMinHoldBack(t *testing.T) {
	onEvery(t, keeping, func(t *testing.T, w *world) {
		l, others := w.locker(t, redlatch.WithMinHold(time.Hour)), w.locker(t)
		lock := mustLock(t, l, "k", redlatch.WithMinHold(0))
		require.Less(t, time.Until(lock.Until()), time.Minute)
		require.NoError(t, lock.Unlock(t.Context()))
		require.NoError(t, mustLock(t, others, "k").Unlock(t.Context()))
		require.NoError(t, mustLock(t, l, "k").Unlock(t.Context()))
		_, err := others.TryLock(t.Context(), "k")
		requireOnly(t, err, redlatch.ErrNotAcquired)
	})
}

// TestNoMinHoldSuitsEveryStrategy: LegacySetNX cannot keep a key, and is not asked to.
func TestNoMinHoldSuitsEveryStrategy(t *testing.T) {
	onEvery(t, everyLocker(), func(t *testing.T, w *world) {
		l := w.locker(t, redlatch.WithMinHold(0), redlatch.WithMaxHold(0), redlatch.WithMaxWait(0))
		require.NoError(t, mustLock(t, l, "k", redlatch.WithMinHold(0)).Unlock(t.Context()))
		gone(t, w.Direct, "k")
	})
}
