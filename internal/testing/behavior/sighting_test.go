package behavior_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/locktest"
)

// oneHolder has the Lockers whose keys have one holder, whatever the options are.
func oneHolder() map[string]maker {
	lockers := everyLocker()
	delete(lockers, "Semaphore")
	return lockers
}

// A look is a call by which a Locker learns who holds k.
type look struct {
	name       string
	free, held bool // it shows that nobody holds the key, or who does
	call       func(t *testing.T, l redlatch.Locker)
}

var looks = []look{
	{"TryLock", false, true, func(t *testing.T, l redlatch.Locker) {
		_, err := l.TryLock(t.Context(), "k")
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
	}},
	{"Lock", false, true, func(t *testing.T, l redlatch.Locker) {
		_, err := l.Lock(t.Context(), "k", alone, redlatch.WithMaxWait(time.Millisecond))
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
	}},
	{"Inspect", true, true, func(t *testing.T, l redlatch.Locker) { inspected(t, l) }},
	{"Forget", true, true, func(t *testing.T, l redlatch.Locker) { require.NoError(t, redlatch.Forget(t.Context(), l, "k")) }},
	{"grant", true, false, func(t *testing.T, l redlatch.Locker) { mustLock(t, l, "k") }},
}

// hasEnded reports whether the lock of a handle has ended. It asks the handle only, and no clock.
func hasEnded(lock *redlatch.Lock) bool {
	synctest.Wait()
	select {
	case <-lock.Done():
		return true
	default:
		return false
	}
}

// TestWhatAProcessLearnsEndsItsLostLock: somebody has deleted the key. The holder learns of it when a caller of the same
// Locker learns who has the key, and not before.
func TestWhatAProcessLearnsEndsItsLostLock(t *testing.T) {
	for _, look := range looks {
		for _, free := range []bool{false, true} {
			if free && !look.free || !free && !look.held {
				continue
			}
			for _, opts := range [][]redlatch.Option{{longTTL}, {longTTL, redlatch.WithoutRenewal()}} {
				t.Run(fmt.Sprint(look.name, " free ", free, " options ", len(opts)), func(t *testing.T) {
					kinds := oneHolder()
					if strings.HasSuffix(look.name, "Lock") {
						delete(kinds, "LegacySetNX") // its refusals name nobody
					}
					onEvery(t, kinds, func(t *testing.T, w *world) {
						var lost heard
						l := w.locker(t, append(opts, redlatch.WithHooks(redlatch.Hooks{Lost: lost.add}))...)
						lock := mustLock(t, l, "k")
						other := w.locker(t)
						time.Sleep(time.Second)
						require.NoError(t, w.Direct.FlushDB(t.Context()).Err())
						if !free {
							mustLock(t, other, "k")
						}
						time.Sleep(time.Second)
						require.False(t, hasEnded(lock), "it cannot know yet")
						look.call(t, l)
						time.Sleep(time.Millisecond)
						require.True(t, hasEnded(lock))
						require.ErrorIs(t, lock.Err(), redlatch.ErrLost)
						require.NotEmpty(t, lost.all())
						require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrLost)
					})
				})
			}
		}
	}
}

// TestReaderLearnsOfAWriter, by a call of either side. Other readers say nothing about its lock.
func TestReaderLearnsOfAWriter(t *testing.T) {
	t.Parallel()
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		var renewed heard
		read, write := locktest.ReadWrite(t, s.Client(t), longTTL, redlatch.WithHooks(redlatch.Hooks{Renewed: renewed.add}))
		otherRead, otherWrite := locktest.ReadWrite(t, s.Client(t))
		for _, l := range []redlatch.Locker{read, write} {
			lock := mustLock(t, read, "k")
			time.Sleep(time.Second)
			beside := mustLock(t, otherRead, "k")
			_, err := write.TryLock(t.Context(), "k")
			require.ErrorIs(t, err, redlatch.ErrNotAcquired)
			inspected(t, read)
			time.Sleep(time.Millisecond)
			require.Empty(t, renewed.all())
			require.NoError(t, beside.Unlock(t.Context()))

			require.NoError(t, s.Direct.FlushDB(t.Context()).Err())
			writer := mustLock(t, otherWrite, "k")
			_, err = l.TryLock(t.Context(), "k")
			require.ErrorIs(t, err, redlatch.ErrNotAcquired)
			time.Sleep(time.Millisecond)
			require.True(t, hasEnded(lock))
			require.NoError(t, writer.Unlock(t.Context()))
		}
	})
}

// TestWriterLearnsOfAReader, by a call of either side.
func TestWriterLearnsOfAReader(t *testing.T) {
	t.Parallel()
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		read, write := locktest.ReadWrite(t, s.Client(t), longTTL)
		otherRead, _ := locktest.ReadWrite(t, s.Client(t))
		for name, look := range map[string]func(){
			"write": func() {
				_, err := write.TryLock(t.Context(), "k")
				require.ErrorIs(t, err, redlatch.ErrNotAcquired)
			},
			"read": func() { inspected(t, read) },
		} {
			lock := mustLock(t, write, "k")
			time.Sleep(time.Second)
			require.NoError(t, s.Direct.FlushDB(t.Context()).Err())
			reader := mustLock(t, otherRead, "k")
			look()
			time.Sleep(time.Millisecond)
			require.True(t, hasEnded(lock), name)
			require.NoError(t, reader.Unlock(t.Context()))
		}
	})
}

// TestLooksAtOneselfCostNothing: a process that sees its own lock sends no renewal, nor for what it saw before the
// lock was granted, and a lock that was adopted stays with both.
func TestLooksAtOneselfCostNothing(t *testing.T) {
	onEvery(t, oneHolder(), func(t *testing.T, w *world) {
		var renewed heard
		l := w.locker(t, longTTL, redlatch.WithHooks(redlatch.Hooks{Renewed: renewed.add}))
		lock := mustLock(t, l, "k")
		if w.name != "Migration" {
			adopted, err := l.Adopt(t.Context(), "k", lock.Token())
			require.NoError(t, err)
			require.False(t, hasEnded(lock))
			require.False(t, hasEnded(adopted))
		}
		time.Sleep(time.Second)
		for range 10 {
			_, err := l.TryLock(t.Context(), "k")
			require.ErrorIs(t, err, redlatch.ErrNotAcquired)
			inspected(t, l)
			time.Sleep(time.Second)
		}
		require.Empty(t, renewed.all())
		require.False(t, hasEnded(lock))
		require.NoError(t, lock.Unlock(t.Context()))
	})
}

// TestLookOlderThanTheGrantCostsNothing: a refusal comes late that names the holder before.
func TestLookOlderThanTheGrantCostsNothing(t *testing.T) {
	onEvery(t, only("SetNXPX", "LegacySetNX", "Write"), func(t *testing.T, w *world) {
		var renewed heard
		client, tap := locktest.Tapped(t, w.Site)
		l := w.over(t, client, longTTL)
		locktest.Warm(t, l)
		before := mustLock(t, w.locker(t), "k")
		for _, ask := range []func(){
			func() { _, _ = l.TryLock(t.Context(), "k") },
			func() { _, _ = l.Inspect(t.Context(), "k") },
		} {
			tap.Late(500 * time.Millisecond) // the reply
			var asked sync.WaitGroup
			asked.Go(ask)
			time.Sleep(100 * time.Millisecond)
			tap.Heal()
			require.NoError(t, before.Unlock(t.Context()))
			lock := mustLock(t, l, "k", redlatch.WithHooks(redlatch.Hooks{Renewed: renewed.add}))
			asked.Wait()
			time.Sleep(time.Millisecond)
			require.Empty(t, renewed.all())
			require.NoError(t, lock.Unlock(t.Context()))
			before = mustLock(t, w.locker(t), "k")
		}
	})
}

// TestManySightingsCostOneRenewal: what all of them have asked is older than the renewal. The lock only seemed to be
// lost, so it goes on.
func TestManySightingsCostOneRenewal(t *testing.T) {
	onEvery(t, only("SetNXPX"), func(t *testing.T, w *world) {
		var renewed heard
		client, tap := locktest.Tapped(t, w.Site)
		l := w.over(t, client, longTTL)
		locktest.Warm(t, l)
		lock := mustLock(t, l, "k", redlatch.WithHooks(redlatch.Hooks{Renewed: renewed.add}))
		time.Sleep(time.Second)
		token := string(lock.Token())
		for i := range 3 {
			require.NoError(t, w.Direct.Set(t.Context(), "k", "somebody", time.Hour).Err())
			tap.Late(500 * time.Millisecond) // the replies
			var all sync.WaitGroup
			for range 50 {
				all.Go(func() { _, _ = l.TryLock(t.Context(), "k") })
			}
			time.Sleep(100 * time.Millisecond)
			require.NoError(t, w.Direct.Set(t.Context(), "k", token, time.Hour).Err())
			tap.Heal()
			all.Wait()
			time.Sleep(time.Second)
			require.Len(t, renewed.all(), i+1)
			require.False(t, hasEnded(lock))
		}
		require.NoError(t, lock.Unlock(t.Context()))
	})
}

// TestSightingsLoseNoLockThatIsHeld: processes hand a key to each other, within themselves too, while others of theirs look.
func TestSightingsLoseNoLockThatIsHeld(t *testing.T) {
	onRedis(t, oneHolder(), func(t *testing.T, w *world) {
		const rounds = 100
		var lost heard
		var holders atomic.Int32
		ctx, stop := context.WithCancel(t.Context())
		var lookers, users sync.WaitGroup
		for range 3 {
			l := w.locker(t, redlatch.WithHooks(redlatch.Hooks{Lost: lost.add}))
			use := func(lock *redlatch.Lock, err error) {
				if errors.Is(err, redlatch.ErrNotAcquired) || !assert.NoError(t, err) {
					return
				}
				assert.Equal(t, int32(1), holders.Add(1))
				time.Sleep(rand.N(300 * time.Microsecond))
				holders.Add(-1)
				assert.NoError(t, lock.Unlock(t.Context()))
			}
			for i, acquire := range []func() (*redlatch.Lock, error){
				func() (*redlatch.Lock, error) { return l.Lock(ctx, "k") },
				func() (*redlatch.Lock, error) { return l.Lock(ctx, "k") },
				func() (*redlatch.Lock, error) { return l.Lock(ctx, "k", alone) },
				func() (*redlatch.Lock, error) { return l.TryLock(ctx, "k") },
			} {
				users.Go(func() {
					for range rounds / (1 + i/2) {
						use(acquire())
					}
				})
			}
			lookers.Go(func() {
				for ctx.Err() == nil {
					_, _ = l.Inspect(ctx, "k")
				}
			})
		}
		users.Wait()
		stop()
		lookers.Wait()
		require.Empty(t, lost.all())
	})
}
