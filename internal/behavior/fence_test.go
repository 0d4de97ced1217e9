package behavior_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
)

// mints are the operations that issue a fence. Each prepares its operation and returns a function that carries it out, so that a
// test can change the register in between.
var mints = map[string]func(t *testing.T, l redlatch.Locker) func() *redlatch.Lock{
	"acquire": func(t *testing.T, l redlatch.Locker) func() *redlatch.Lock {
		return func() *redlatch.Lock { return mustLock(t, l, "k") }
	},
	"adopt": func(t *testing.T, l redlatch.Locker) func() *redlatch.Lock {
		parent := mustLock(t, l, "k", redlatch.WithoutRenewal())
		return func() *redlatch.Lock {
			lock, err := l.Adopt(t.Context(), "k", parent.Token())
			require.NoError(t, err)
			return lock
		}
	},
	"hand-over": func(t *testing.T, l redlatch.Locker) func() *redlatch.Lock {
		holder := mustLock(t, l, "k")
		got := waitInLine(t, l, "k", alone)
		return func() *redlatch.Lock {
			require.NoError(t, holder.Unlock(t.Context()))
			return await(t, got, "the hand-over")
		}
	},
}

// TestFencesOfOneNodeGrow: eight clients get 400 grants. Then the register is deleted or loses what a failover would lose, and the
// clock of the server keeps the fences growing. This holds for each operation that issues a fence.
func TestFencesOfOneNodeGrow(t *testing.T) {
	onRedis(t, queues, func(t *testing.T, w *world) {
		var seen locktest.FenceLog
		var wg sync.WaitGroup
		for range 8 {
			l := w.locker(t)
			wg.Go(func() {
				for range 50 {
					if err := redlatch.Do(t.Context(), l, "k", func(_ context.Context, lock *redlatch.Lock) error {
						seen.Add(lock.Fence())
						return nil
					}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		seen.RequireGrowth(t, 400)
		l := w.locker(t, longTTL)
		for name, mint := range mints {
			for what, lose := range map[string]func() error{
				"evicted": func() error { return w.Direct.Del(t.Context(), registerKey).Err() },
				"without a second of increments, as after a failover": func() error {
					<-time.After(15 * time.Millisecond) // no failover is faster
					return w.Direct.DecrBy(t.Context(), registerKey, 250_000).Err()
				},
				"after SCRIPT FLUSH": func() error { return w.Direct.ScriptFlush(t.Context()).Err() },
			} {
				for range 3 {
					ready := mint(t, l)
					last := register(t, w.Direct)
					require.NoError(t, lose())
					lock := ready()
					require.Greater(t, lock.Fence(), last, "%s, %s", name, what)
					requireSoundFences(t, w.Direct)
					require.NoError(t, lock.Unlock(t.Context()))
				}
			}
		}
		onlyFences(t, w.Direct)
	})
}

// TestHandOverWithoutAFenceLocksNothing: a release that cannot mint a fence for the next waiter deletes the key. The waiter reports
// why it is not served, and is served once the register is deleted.
func TestHandOverWithoutAFenceLocksNothing(t *testing.T) {
	onRedis(t, queues, func(t *testing.T, w *world) {
		for _, register := range []string{"a shopping list", "9007199254740992"} {
			var troubles heard
			l := w.locker(t, longTTL)
			holder := mustLock(t, l, "k")
			got := waitInLine(t, l, "k", redlatch.WithHooks(redlatch.Hooks{Trouble: troubles.add}), alone)
			require.NoError(t, w.Direct.Set(t.Context(), registerKey, register, time.Hour).Err())
			require.NoError(t, holder.Unlock(t.Context()))
			eventually(t, "the waiter reports it", func() bool { return len(troubles.all()) > 0 })
			require.ErrorContains(t, troubles.all()[0].Err, "redlatch:fence holds something else")
			require.Zero(t, w.Direct.Exists(t.Context(), "k").Val())
			require.Equal(t, register, w.Direct.Get(t.Context(), registerKey).Val())
			require.Empty(t, got)

			require.NoError(t, w.Direct.Del(t.Context(), registerKey).Err())
			lock := await(t, got, "it is served")
			require.Greater(t, lock.Fence(), holder.Fence())
			require.NoError(t, lock.Unlock(t.Context()))
			onlyFences(t, w.Direct)
		}
	})
}
