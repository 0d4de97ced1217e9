package behavior_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
)

// contents returns the permits and the queue of a semaphore as Redis has them.
func contents(t *testing.T, s *locktest.Site) [2][]redis.Z {
	t.Helper()
	var found [2][]redis.Z
	for i, key := range []string{"k", "{k}:permits:k"} {
		members, err := s.Direct.ZRangeWithScores(t.Context(), key, 0, -1).Result()
		require.NoError(t, err)
		found[i] = members
	}
	return found
}

// refusedWith fails unless err names limit 5 of the caller and limit 1 of the others.
func refusedWith(t *testing.T, err error, op string) {
	t.Helper()
	require.ErrorIs(t, err, redlatch.ErrInvalidOption, op)
	require.NotErrorIs(t, err, redlatch.ErrNotAcquired, op)
	require.NotErrorIs(t, err, redlatch.ErrLost, op)
	require.Regexp(t, `limit 5: .*"k".* limit 1$`, err.Error(), op)
}

// TestAnotherLimitChangesNothing: the limit of those who hold a key or wait for it counts for every
// operation, also once all leases have expired.
func TestAnotherLimitChangesNothing(t *testing.T) {
	for name, expired := range map[string]bool{"held": false, "expired, with a waiter": true} {
		t.Run(name, func(t *testing.T) {
			locktest.OnBoth(t, func(t *testing.T, s *locktest.Site) {
				one, five := newSemaphore(t, s.Client(t), 1, longTTL), newSemaphore(t, s.Client(t), 5, longTTL)
				lock := mustLock(t, one, "k")
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				ended := make(chan error, 1)
				go func() { // the test owns it, and waits for it below
					_, err := one.Lock(ctx, "k")
					ended <- err
				}()
				eventually(t, "it queues", func() bool {
					st, err := one.Inspect(t.Context(), "k")
					return err == nil && st.Waiters == 1
				})
				if expired {
					// As if the process of the waiter were frozen, and the lease had ended.
					queue := s.Direct.ZRangeWithScores(t.Context(), "{k}:permits:k", 0, -1).Val()
					cancel()
					require.ErrorIs(t, <-ended, redlatch.ErrNotAcquired)
					gone(t, s.Direct, "{k}:permits:k")
					require.NoError(t, s.Direct.ZAdd(t.Context(), "{k}:permits:k", queue...).Err())
					require.NoError(t, s.Direct.Del(t.Context(), "k").Err())
				}

				before := contents(t, s)
				for op, ask := range map[string]func() error{
					"TryLock": func() error { _, err := five.TryLock(t.Context(), "k"); return err },
					"Lock":    func() error { _, err := five.Lock(t.Context(), "k"); return err },
					"Inspect": func() error { _, err := five.Inspect(t.Context(), "k"); return err },
					"Adopt":   func() error { _, err := five.Adopt(t.Context(), "k", lock.Token()); return err },
					"Lead":    func() error { return redlatch.Lead(bounded(t), five, "k", never[*redlatch.Lock](t)) },
				} {
					refusedWith(t, ask(), op)
					require.Equal(t, before, contents(t, s), op)
				}
				if expired {
					require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrLost)
				} else {
					cancel()
					require.ErrorIs(t, <-ended, redlatch.ErrNotAcquired)
					require.NoError(t, lock.Unlock(t.Context()))
				}
			})
		})
	}
}

// TestHandleOfAnotherLimitLetsNobodyIn: for handles that were granted before others used the key
// with another limit. A permit that is still held is neither extended nor released. A permit that is gone is lost.
// Neither lets a waiter in.
func TestHandleOfAnotherLimitLetsNobodyIn(t *testing.T) {
	locktest.OnBoth(t, func(t *testing.T, s *locktest.Site) {
		one, five := newSemaphore(t, s.Client(t), 1, longTTL), newSemaphore(t, s.Client(t), 5, longTTL)
		kept := mustLock(t, five, "k")
		require.NoError(t, s.Direct.ZAdd(t.Context(), "k", redis.Z{Score: -1, Member: ""}).Err())
		before := contents(t, s)
		refusedWith(t, kept.Extend(t.Context(), 2*time.Hour), "Extend")
		require.NoError(t, kept.Err())
		refusedWith(t, kept.Unlock(t.Context()), "Unlock")
		require.Equal(t, before, contents(t, s))
		require.NoError(t, s.Direct.Del(t.Context(), "k").Err())

		extended, unlocked := mustLock(t, five, "k"), mustLock(t, five, "k")
		require.NoError(t, s.Direct.Del(t.Context(), "k").Err())
		holder := mustLock(t, one, "k")
		next, last := waitInLine(t, one, "k"), waitInLine(t, one, "k", alone)
		before = contents(t, s)
		require.ErrorIs(t, extended.Extend(t.Context(), 2*time.Hour), redlatch.ErrLost)
		require.ErrorIs(t, unlocked.Unlock(t.Context()), redlatch.ErrLost)
		require.Equal(t, before, contents(t, s))
		require.Equal(t, 1, holders(t, one, "k"))

		require.NoError(t, holder.Unlock(t.Context()))
		lock := <-next
		require.NotNil(t, lock)
		require.Empty(t, last)
		require.NoError(t, lock.Unlock(t.Context()))
		require.NoError(t, (<-last).Unlock(t.Context()))
		require.Zero(t, s.Direct.Exists(t.Context(), "k", "{k}:permits:k").Val())
	})
}

// TestWaiterOfAnotherLimitLeavesTheQueue: somebody deletes the key, and others use it with another
// limit. A waiter of the first limit learns of that when it asks again, and leaves no entry behind.
func TestWaiterOfAnotherLimitLeavesTheQueue(t *testing.T) {
	locktest.OnBoth(t, func(t *testing.T, s *locktest.Site) {
		one, five := newSemaphore(t, s.Client(t), 1, longTTL), newSemaphore(t, s.Client(t), 5, longTTL)
		fill(t, five, "k", 5)
		ended := make(chan error, 1)
		go func() { // the test owns it, and waits for it below
			_, err := five.Lock(t.Context(), "k")
			ended <- err
		}()
		eventually(t, "it queues", func() bool {
			st, err := five.Inspect(t.Context(), "k")
			return err == nil && st.Waiters == 1
		})
		queue := s.Direct.ZRangeWithScores(t.Context(), "{k}:permits:k", 0, -1).Val()
		require.NoError(t, s.Direct.Del(t.Context(), "k", "{k}:permits:k").Err())
		lock := mustLock(t, one, "k")
		require.NoError(t, s.Direct.ZAdd(t.Context(), "{k}:permits:k", queue...).Err())
		refusedWith(t, <-ended, "Lock")
		gone(t, s.Direct, "{k}:permits:k")
		require.NoError(t, lock.Unlock(t.Context()))
	})
}
