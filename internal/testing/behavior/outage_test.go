package behavior_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
)

// TestCtxEndsAtAnyInstant: calls whose ctx ends at random instants under load return at once. They
// leave no key, no place in a queue and no goroutine.
func TestCtxEndsAtAnyInstant(t *testing.T) {
	onEvery(t, everyStrategy, func(t *testing.T, w *world) {
		var granted atomic.Int64
		var wg sync.WaitGroup
		for range 3 {
			client := w.Client(t)
			l := w.over(t, client, longTTL)
			linkOf(t, client).set(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
				time.Sleep(rand.N(2 * time.Millisecond))
				defer time.Sleep(rand.N(2 * time.Millisecond))
				return next(ctx, cmd)
			})
			for i := range 10 {
				wg.Go(func() {
					for range 20 {
						ctx, cancel := context.WithTimeout(t.Context(), rand.N(30*time.Millisecond))
						lock := l.Lock
						if i%2 == 0 {
							lock = l.TryLock
						}
						got, err := lock(ctx, fmt.Sprint("k", rand.N(4)))
						deadline, _ := ctx.Deadline()
						assert.LessOrEqual(t, time.Since(deadline), time.Duration(0))
						cancel()
						if err == nil {
							granted.Add(1)
							err = got.Unlock(ctx)
						}
						if err != nil && !errors.Is(err, redlatch.ErrNotAcquired) && !errors.Is(err, context.DeadlineExceeded) {
							t.Error(err)
						}
					}
				})
			}
		}
		wg.Wait()
		require.Positive(t, granted.Load())
		onlyFences(t, w.Direct)
	})
}

// TestHeldKeyBehindASlowLinkIsNoOutage: callers of a process wait for little longer than a round
// trip. Their errors say that the key is held.
func TestHeldKeyBehindASlowLinkIsNoOutage(t *testing.T) {
	onEvery(t, everyStrategy, func(t *testing.T, w *world) {
		lock := mustLock(t, w.locker(t), "k")
		l, link := w.linked(t, redlatch.WithOpTimeout(time.Second))
		require.NoError(t, mustLock(t, l, "warm").Unlock(t.Context()))
		link.delay(600 * time.Millisecond)
		var callers sync.WaitGroup
		for range 60 {
			callers.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second+rand.N(time.Second))
				defer cancel()
				_, err := l.Lock(ctx, "k")
				assert.ErrorIs(t, err, redlatch.ErrNotAcquired)
				assert.NotErrorIs(t, err, redlatch.ErrUnavailable)
			})
			time.Sleep(40 * time.Millisecond)
		}
		callers.Wait()
		require.NoError(t, lock.Unlock(t.Context()))
	})
}
