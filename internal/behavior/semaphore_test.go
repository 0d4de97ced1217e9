package behavior_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/node"
)

// limited returns what makes a semaphore.
func limited(limit int) maker {
	return func(c redis.UniversalClient, opts ...redlatch.Option) (redlatch.Locker, error) {
		return redlatch.NewSemaphore(c, limit, opts...)
	}
}

// onLimit runs a test on a semaphore, with miniredis in a synctest bubble.
func onLimit(t *testing.T, limit int, test func(t *testing.T, w *world)) {
	onEvery(t, map[string]maker{fmt.Sprint("limit ", limit): limited(limit)}, test)
}

// fill acquires limit permits of k.
func fill(t *testing.T, l redlatch.Locker, limit int, opts ...redlatch.Option) []*redlatch.Lock {
	t.Helper()
	locks := make([]*redlatch.Lock, limit)
	for i := range locks {
		locks[i] = mustLock(t, l, "k", opts...)
	}
	return locks
}

// requireHolders requires that so many tokens hold a permit of k.
func requireHolders(t *testing.T, l redlatch.Locker, want int) {
	t.Helper()
	st, err := l.Inspect(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, want, st.Holders)
	require.Equal(t, want > 0, st.Held)
}

// TestLimitIsReachedAndNotPassed: each permit has a higher fence than the one before. Once all permits are taken, the next call is
// refused. Once all are released, the key is gone.
func TestLimitIsReachedAndNotPassed(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{1, 2, 3, 100} {
		t.Run(fmt.Sprint("limit ", limit), func(t *testing.T) {
			locktest.OnBoth(t, func(t *testing.T, s *locktest.Site) {
				l := newSemaphore(t, s.Client(t), limit)
				locks := fill(t, newSemaphore(t, s.Client(t), limit, redlatch.WithOwner("others")), limit)
				_, err := l.TryLock(t.Context(), "k")
				require.ErrorContains(t, err, `held by "others"`)
				requireOnly(t, err, redlatch.ErrNotAcquired)
				var fence uint64
				for i, lock := range locks {
					require.Greater(t, lock.Fence(), fence)
					fence = lock.Fence()
					requireHolders(t, l, limit-i)
					require.NoError(t, lock.Unlock(t.Context()))
				}
				require.Zero(t, s.Direct.Exists(t.Context(), "k").Val())
			})
		})
	}
}

// TestNeverMoreThanLimitHold: a crowd of three processes never holds more permits than the limit.
func TestNeverMoreThanLimitHold(t *testing.T) {
	onRedis(t, map[string]maker{"1": limited(1), "3": limited(3), "20": limited(20)}, func(t *testing.T, w *world) {
		limit := map[string]int{"1": 1, "3": 3, "20": 20}[w.name]
		var inside peak
		var crowd sync.WaitGroup
		for range 3 {
			l := w.locker(t)
			for range min(limit, 10) + 2 {
				crowd.Go(func() {
					for range 10 {
						assert.NoError(t, redlatch.Do(t.Context(), l, "k", func(context.Context, *redlatch.Lock) error {
							inside.enter()
							<-time.After(time.Millisecond)
							inside.leave()
							return nil
						}))
					}
				})
			}
		}
		crowd.Wait()
		require.LessOrEqual(t, inside.highest(), limit)
		require.GreaterOrEqual(t, inside.highest(), min(limit, 3), "holders work side by side")
		onlyFences(t, w.Direct)
	})
}

// TestPermitsAreGrantedInTheOrderOfArrival: as many waiters are served as permits come free, and those who have waited longest come
// first, also if a permit expires and somebody else finds it.
func TestPermitsAreGrantedInTheOrderOfArrival(t *testing.T) {
	onLimit(t, 3, func(t *testing.T, w *world) {
		const limit = 3
		for name, opts := range map[string][]redlatch.Option{"released": nil, "expired": {redlatch.WithoutRenewal()}} {
			held := fill(t, w.locker(t), limit, opts...)
			shared := w.locker(t)
			var line []<-chan *redlatch.Lock
			for i := range 3 * limit {
				l := shared // every other waiter is of one process
				if i%2 == 0 {
					l = w.locker(t)
				}
				line = append(line, waitInLine(t, l, "k", alone))
			}
			for len(line) > 0 {
				for _, lock := range held {
					if opts == nil || lock.Err() != nil {
						_ = lock.Unlock(t.Context())
					} else {
						<-lock.Done()
					}
				}
				for opts != nil && len(line[limit-1]) == 0 {
					_, err := shared.TryLock(t.Context(), "k")
					require.ErrorIs(t, err, redlatch.ErrNotAcquired, "overtaken")
					time.Sleep(10 * time.Millisecond)
				}
				for i := range held {
					held[i] = await(t, line[i], name)
				}
				opts, line = nil, line[limit:]
				for _, later := range line {
					require.Empty(t, later, "served before its turn")
				}
				requireHolders(t, shared, limit)
			}
			for _, lock := range held {
				require.NoError(t, lock.Unlock(t.Context()))
			}
			onlyFences(t, w.Direct)
		}
	})
}

// TestCrashedHoldersCostTheirTTL: permits that nobody releases count until they expire and no longer, whatever the TTLs of the
// others are.
func TestCrashedHoldersCostTheirTTL(t *testing.T) {
	onLimit(t, 3, func(t *testing.T, w *world) {
		l := w.locker(t, redlatch.WithoutRenewal(), longTTL)
		long := mustLock(t, l, "k")
		begin := time.Now()
		mustLock(t, l, "k", redlatch.WithTTL(20*time.Second))
		mustLock(t, l, "k", redlatch.WithTTL(10*time.Second))
		locks := []*redlatch.Lock{long}
		for _, ttl := range []time.Duration{10 * time.Second, 20 * time.Second} {
			lock, err := l.Lock(t.Context(), "k")
			require.NoError(t, err)
			require.InDelta(t, ttl, time.Since(begin), float64(100*time.Millisecond))
			locks = append(locks, lock)
		}
		require.Greater(t, w.Direct.PTTL(t.Context(), "k").Val(), 59*time.Minute, "the set outlives the longest lease")
		for _, lock := range locks {
			require.NoError(t, lock.Unlock(t.Context()))
		}
		require.Zero(t, w.Direct.Exists(t.Context(), "k").Val())
	})
}

// TestEachCallerBringsItsLimit: a caller is granted a permit while fewer than its own limit are held. So the limit can change in a
// rolling deploy, and the largest one in use counts.
func TestEachCallerBringsItsLimit(t *testing.T) {
	onLimit(t, 2, func(t *testing.T, w *world) {
		two, three := w.locker(t), newSemaphore(t, w.Client(t), 3)
		held := append(fill(t, two, 2), mustLock(t, three, "k"))
		for range 2 {
			for _, l := range []redlatch.Locker{two, three} {
				_, err := l.TryLock(t.Context(), "k")
				requireOnly(t, err, redlatch.ErrNotAcquired)
				requireHolders(t, l, 3)
			}
			require.NoError(t, held[2].Unlock(t.Context()))
			_, err := two.TryLock(t.Context(), "k")
			requireOnly(t, err, redlatch.ErrNotAcquired)
			held[2] = mustLock(t, three, "k")
		}
		for _, lock := range held {
			require.NoError(t, lock.Unlock(t.Context()))
		}
		require.Zero(t, w.Direct.Exists(t.Context(), "k").Val())
	})
}

// TestSomebodysSortedSetIsLeftAlone: a sorted set that is no semaphore, or the key of another strategy, stays as it is. It is an
// error that retrying cannot fix, also for Lead. To the holder of a permit it is a lost lock.
func TestSomebodysSortedSetIsLeftAlone(t *testing.T) {
	onLimit(t, 3, func(t *testing.T, w *world) {
		l, lock := w.locker(t, redlatch.WithoutRenewal()), newLocker(t, w.Client(t))
		for name, theirs := range map[string][]redis.Z{
			"names":           {{Score: 1, Member: "alice"}, {Score: 1e18, Member: "bob"}},
			"an empty member": {{Score: 0, Member: ""}, {Score: 1, Member: "bob"}},
		} {
			permits := fill(t, l, 2)
			require.NoError(t, w.Direct.Del(t.Context(), "k").Err())
			require.NoError(t, w.Direct.ZAdd(t.Context(), "k", theirs...).Err())
			for op, ask := range map[string]func() error{
				"TryLock": func() error { _, err := l.TryLock(t.Context(), "k"); return err },
				"Lock":    func() error { _, err := l.Lock(t.Context(), "k"); return err },
				"Inspect": func() error { _, err := l.Inspect(t.Context(), "k"); return err },
				"Lead":    func() error { return redlatch.Lead(bounded(t), l, "k", never[*redlatch.Lock](t)) },
				"a lock":  func() error { _, err := lock.Lock(t.Context(), "k"); return err },
			} {
				requireOnly(t, ask(), node.ErrOtherData, "%s, %s", name, op)
			}
			require.ErrorIs(t, permits[0].Unlock(t.Context()), redlatch.ErrLost)
			require.ErrorIs(t, permits[1].Extend(t.Context(), time.Hour), redlatch.ErrLost)
			require.Equal(t, theirs, w.Direct.ZRangeWithScores(t.Context(), "k", 0, -1).Val())
			require.NoError(t, w.Direct.Del(t.Context(), "k").Err())
		}
		held := mustLock(t, lock, "k")
		_, err := l.Lock(t.Context(), "k")
		require.ErrorContains(t, err, "WRONGTYPE")
		require.NoError(t, held.Unlock(t.Context()))
	})
}
