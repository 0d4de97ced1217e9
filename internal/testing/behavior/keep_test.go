package behavior_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/locktest"
)

// TestKeptKeyIsHandedOnWhenItsTimeHasPassed: to the first in the queue, and not before. Nobody
// looks just then: the time is shorter than the pauses between looks, or only the process that
// keeps the key and asks for it again knows when it ends.
func TestKeptKeyIsHandedOnWhenItsTimeHasPassed(t *testing.T) {
	onEvery(t, queues, func(t *testing.T, w *world) {
		for _, keep := range []time.Duration{time.Millisecond, 10 * time.Millisecond, 300 * time.Millisecond, 10 * time.Second, 11 * time.Second} {
			l := w.locker(t)
			lock := mustLock(t, l, "k")
			first, second := waitInLine(t, w.locker(t), "k"), waitInLine(t, w.locker(t), "k")
			time.Sleep(time.Minute)
			began := time.Now()
			require.NoError(t, lock.UnlockAfter(t.Context(), keep))
			again := locktest.Standing(t, l)
			for i, got := range []<-chan *redlatch.Lock{first, second, again} {
				next := await(t, got, "its turn")
				require.InDelta(t, keep+time.Millisecond, time.Since(began), float64(time.Millisecond), "%v, waiter %d", keep, i)
				require.NoError(t, next.Unlock(t.Context()))
			}
			onlyFences(t, w.Direct)
		}
	})
}

// TestKeptKeyEndsWithoutItsProcess: which is cut off. Redis keeps the key for 100 ms longer if that
// process was to end it, and exactly for a long time.
func TestKeptKeyEndsWithoutItsProcess(t *testing.T) {
	onEvery(t, queues, func(t *testing.T, w *world) {
		for keep, late := range map[time.Duration]time.Duration{
			50 * time.Millisecond: 100 * time.Millisecond, 10 * time.Second: 100 * time.Millisecond, 11 * time.Second: 0,
		} {
			l, link := w.linked(t, redlatch.WithOpTimeout(time.Second))
			lock := mustLock(t, l, "k")
			began := time.Now()
			require.NoError(t, lock.UnlockAfter(t.Context(), keep))
			link.refuse()
			time.Sleep(keep + late - 2*time.Millisecond - time.Since(began))
			_, err := w.locker(t).TryLock(t.Context(), "k")
			requireOnly(t, err, redlatch.ErrNotAcquired, keep)
			time.Sleep(4 * time.Millisecond)
			lock = mustLock(t, w.locker(t), "k")
			link.heal()
			time.Sleep(2 * time.Minute)
			require.NoError(t, lock.Unlock(t.Context()), "the key of another owner stays")
			onlyFences(t, w.Direct)
		}
	})
}

// TestKeyIsKeptThoughTheClockOfRedisWasSetForward: by more than the time for which it is kept. So the clock of a
// server differs that takes over, and this process falls behind if its machine stands still. nil says that
// nobody else gets the key.
func TestKeyIsKeptThoughTheClockOfRedisWasSetForward(t *testing.T) {
	onEvery(t, keeping, func(t *testing.T, w *world) {
		const keep = 3 * time.Second
		for name, c := range map[string]struct {
			opts   []redlatch.Option
			unlock func(lock *redlatch.Lock) error
		}{
			"WithMinHold": {[]redlatch.Option{redlatch.WithMinHold(keep)}, func(lock *redlatch.Lock) error {
				return lock.Unlock(t.Context())
			}},
			"UnlockAfter": {nil, func(lock *redlatch.Lock) error { return lock.UnlockAfter(t.Context(), keep) }},
		} {
			l := w.locker(t, redlatch.WithTTL(time.Minute))
			lock := mustLock(t, l, "k", c.opts...)
			w.Step(5 * time.Second)
			began := time.Now()
			require.NoError(t, c.unlock(lock), name)
			time.Sleep(keep - 10*time.Millisecond - time.Since(began))
			_, err := w.locker(t).TryLock(t.Context(), "k")
			requireOnly(t, err, redlatch.ErrNotAcquired, name)
			next, err := w.locker(t).Lock(t.Context(), "k")
			require.NoError(t, err)
			require.NoError(t, next.Unlock(t.Context()))
			onlyFences(t, w.Direct)
		}
	})
}

// TestAnotherHandleDoesNotEndAMinHold: it has the same token, and was to keep the key for less.
func TestAnotherHandleDoesNotEndAMinHold(t *testing.T) {
	onEvery(t, queues, func(t *testing.T, w *world) {
		lock := mustLock(t, w.locker(t), "k")
		adopted, err := w.locker(t).Adopt(t.Context(), "k", lock.Token())
		require.NoError(t, err)
		began := time.Now()
		require.NoError(t, lock.UnlockAfter(t.Context(), 5*time.Second))
		requireOnly(t, adopted.UnlockAfter(t.Context(), time.Second), redlatch.ErrLost)
		next, err := w.locker(t).Lock(t.Context(), "k")
		require.NoError(t, err)
		require.InDelta(t, 5, time.Since(began).Seconds(), 0.1)
		require.NoError(t, next.Unlock(t.Context()))
	})
}

// TestReaderKeepsWritersOutUntilItsTimeHasPassed: readers come and go meanwhile. The first writer
// gets the key then, however many readers have shared the permit.
func TestReaderKeepsWritersOutUntilItsTimeHasPassed(t *testing.T) {
	onReadWrite(t, func(t *testing.T, s *locktest.Site, pair sides) {
		for _, together := range []bool{false, true} {
			read, _ := pair()
			_, write := pair()
			lock := mustLock(t, read, "k")
			began := time.Now()
			if together {
				other := mustLock(t, read, "k")
				require.NoError(t, other.UnlockAfter(t.Context(), 300*time.Millisecond))
			}
			require.NoError(t, lock.UnlockAfter(t.Context(), 100*time.Millisecond))
			unlock(t, mustLock(t, read, "k"))
			next, err := write.Lock(t.Context(), "k")
			require.NoError(t, err)
			want := 100 * time.Millisecond
			if together {
				want = 300 * time.Millisecond
			}
			require.InDelta(t, want+time.Millisecond, time.Since(began), float64(time.Millisecond))
			unlock(t, next)
			onlyFences(t, s.Direct)
		}
	})
}

// TestProcessThatKeepsAKeyKeepsNothingElse: not the Lock, nor the ctx or the hooks of its calls.
func TestProcessThatKeepsAKeyKeepsNothingElse(t *testing.T) {
	type key struct{}
	onEvery(t, queues, func(t *testing.T, w *world) {
		l, freed := w.locker(t), new(atomic.Int64)
		func() {
			inHook, inCtx := new([100_000]byte), new([100_000]byte)
			free := func(freed *atomic.Int64) { freed.Add(1) }
			runtime.AddCleanup(inHook, free, freed)
			runtime.AddCleanup(inCtx, free, freed)
			ctx := context.WithValue(t.Context(), key{}, inCtx)
			lock, err := l.Lock(ctx, "k", redlatch.WithHooks(redlatch.Hooks{Released: func(context.Context, redlatch.Event) { inHook[0]++ }}))
			require.NoError(t, err)
			runtime.AddCleanup(lock, free, freed)
			require.NoError(t, lock.UnlockAfter(ctx, 10*time.Second))
		}()
		for freed.Load() < 3 {
			runtime.GC()
			time.Sleep(100 * time.Millisecond)
			require.Less(t, time.Second, w.Direct.PTTL(t.Context(), "k").Val(), "the key is nearly free")
		}
	})
}
