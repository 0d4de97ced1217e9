package behavior_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/rediserr"
	"github.com/redlatch/redlatch/internal/testing/locktest"
	"github.com/redlatch/redlatch/internal/testing/redistest"
)

// ofThree is a semaphore with three permits.
var ofThree = map[string]maker{"limit 3": func(c redis.UniversalClient, opts ...redlatch.Option) (redlatch.Locker, error) {
	return redlatch.NewSemaphore(c, 3, opts...)
}}

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

// TestNeverMoreThanLimitHold: a crowd of three processes never holds more permits than the limit,
// and soon holds as many.
func TestNeverMoreThanLimitHold(t *testing.T) {
	onRedis(t, ofThree, func(t *testing.T, w *world) {
		const limit = 3
		var inside, full atomic.Int64
		var crowd sync.WaitGroup
		for range 3 {
			l := w.locker(t)
			for range limit + 2 {
				crowd.Go(func() {
					for range 10 {
						assert.NoError(t, redlatch.Do(t.Context(), l, "k", func(context.Context, *redlatch.Lock) error {
							defer inside.Add(-1)
							now := inside.Add(1)
							assert.LessOrEqual(t, now, int64(limit))
							full.Add(now / limit)
							<-time.After(time.Millisecond)
							return nil
						}))
					}
				})
			}
		}
		crowd.Wait()
		require.Positive(t, full.Load(), "holders work side by side")
		onlyFences(t, w.Direct)
	})
}

// TestPermitsAreGrantedInTheOrderOfArrival: as many waiters are served as permits come free, and
// those who have waited longest come first. A permit that nobody releases comes free when it
// expires, whatever the TTLs of the others are, and nobody can overtake then.
func TestPermitsAreGrantedInTheOrderOfArrival(t *testing.T) {
	onEvery(t, ofThree, func(t *testing.T, w *world) {
		l := w.locker(t, redlatch.WithoutRenewal())
		begin := time.Now()
		released := mustLock(t, l, "k", longTTL)
		for _, ttl := range []time.Duration{20 * time.Second, 10 * time.Second} {
			mustLock(t, l, "k", redlatch.WithTTL(ttl))
		}
		shared := w.locker(t)
		var line []<-chan *redlatch.Lock
		for i := range 6 {
			next := shared // every other waiter is of one process
			if i%2 == 0 {
				next = w.locker(t)
			}
			line = append(line, waitInLine(t, next, "k", alone))
		}
		var held []*redlatch.Lock
		for i, ttl := range []time.Duration{10 * time.Second, 20 * time.Second} {
			for len(line[i]) == 0 {
				_, err := shared.TryLock(t.Context(), "k")
				require.ErrorIs(t, err, redlatch.ErrNotAcquired, "overtaken")
				time.Sleep(10 * time.Millisecond)
			}
			require.InDelta(t, ttl, time.Since(begin), float64(100*time.Millisecond))
			held = append(held, <-line[i])
		}
		for i, lock := range []*redlatch.Lock{held[0], held[1], released} {
			require.Empty(t, line[i+2], "served before its turn")
			require.NoError(t, lock.Unlock(t.Context()))
			held = append(held, await(t, line[i+2], "its turn"))
		}
		require.Empty(t, line[5], "served before its turn")
		requireHolders(t, shared, 3)
		for _, lock := range held[2:] {
			require.NoError(t, lock.Unlock(t.Context()))
		}
		require.NoError(t, await(t, line[5], "its turn").Unlock(t.Context()))
		onlyFences(t, w.Direct)
	})
}

// TestEachCallerBringsItsLimit: a caller is granted a permit while fewer than its own limit are
// held. So the limit can change in a rolling deploy, and the largest one in use counts.
func TestEachCallerBringsItsLimit(t *testing.T) {
	onEvery(t, ofThree, func(t *testing.T, w *world) {
		two, three := newSemaphore(t, w.Client(t), 2), w.locker(t)
		held := append(fill(t, two, 2), mustLock(t, three, "k"))
		for _, l := range []redlatch.Locker{two, three} {
			_, err := l.TryLock(t.Context(), "k")
			requireOnly(t, err, redlatch.ErrNotAcquired)
			requireHolders(t, l, 3)
		}
		require.NoError(t, held[0].Unlock(t.Context()))
		_, err := two.TryLock(t.Context(), "k")
		requireOnly(t, err, redlatch.ErrNotAcquired)
		mustLock(t, three, "k")
	})
}

// TestCallBringsItsLimit: that of WithLimit counts as that of another Locker does. A call that its own
// ctx keeps out for that reason is refused.
func TestCallBringsItsLimit(t *testing.T) {
	onEvery(t, ofThree, func(t *testing.T, w *world) {
		l := w.locker(t)
		held := append(fill(t, l, 3), fill(t, l, 2, redlatch.WithLimit(5))...)
		for limit, want := range map[int]error{1: redlatch.ErrNotAcquired, 5: redlatch.ErrNotAcquired, 6: nil} {
			lock, err := l.TryLock(t.Context(), "k", redlatch.WithLimit(limit))
			require.ErrorIs(t, err, want)
			if err == nil {
				require.NoError(t, lock.Unlock(t.Context()))
			}
		}
		_, err := l.Lock(held[0].Context(t.Context()), "k", redlatch.WithLimit(1))
		requireOnly(t, err, redlatch.ErrInvalid)
		alone := waitInLine(t, l, "k", redlatch.WithLimit(1))
		for _, lock := range held {
			require.Empty(t, alone)
			require.NoError(t, lock.Unlock(t.Context()))
		}
		require.NoError(t, await(t, alone, "nobody holds a permit").Unlock(t.Context()))
		onlyFences(t, w.Direct)
	})
}

// TestLimitOfOneIsALimit: others may hold the key beside a call with a limit of 1. So its permit is not
// passed on beside theirs, and nobody overtakes who waits for it.
func TestLimitOfOneIsALimit(t *testing.T) {
	one := redlatch.WithLimit(1)
	onEvery(t, ofThree, func(t *testing.T, w *world) {
		var moved atomic.Int64
		l := w.locker(t, redlatch.WithHooks(redlatch.Hooks{Moved: func(context.Context, redlatch.Event) { moved.Add(1) }}))
		for range 20 {
			held, other := mustLock(t, l, "k", one), mustLock(t, w.locker(t), "k")
			next := waitInLine(t, l, "k", one)
			_, err := w.locker(t).TryLock(t.Context(), "k")
			requireOnly(t, err, redlatch.ErrNotAcquired, "overtaken")
			require.NoError(t, held.Unlock(t.Context()))
			requireHolders(t, l, 1)
			require.Empty(t, next)
			require.NoError(t, other.Unlock(t.Context()))
			require.NoError(t, await(t, next, "nobody holds a permit").Unlock(t.Context()))
		}
		require.Zero(t, moved.Load())
		onlyFences(t, w.Direct)
	})
}

// TestCallsWithEqualLimitsShareLines: a crowd of each tenant queues with as many entries as its limit
// allows, and the limits are kept.
func TestCallsWithEqualLimitsShareLines(t *testing.T) {
	onRedis(t, ofThree, func(t *testing.T, w *world) {
		l := w.locker(t)
		held := fill(t, l, 3)
		waiters := func() int {
			st, err := l.Inspect(t.Context(), "k")
			require.NoError(t, err)
			return st.Waiters
		}
		var crowd sync.WaitGroup
		var inside atomic.Int64
		for _, limit := range []int{1, 2} {
			for range 10 {
				crowd.Go(func() {
					assert.NoError(t, redlatch.Do(t.Context(), l, "k", func(context.Context, *redlatch.Lock) error {
						defer inside.Add(-1)
						assert.LessOrEqual(t, inside.Add(1), int64(2), "the largest limit")
						return nil
					}, redlatch.WithLimit(limit)))
				})
			}
		}
		eventually(t, "each line has an entry", func() bool { return waiters() == 3 })
		for _, lock := range held {
			require.NoError(t, lock.Unlock(t.Context()))
		}
		crowd.Wait()
		onlyFences(t, w.Direct)
	})
}

// TestReleaseGoesByTheLimitOfTheWaiter: and nobody overtakes a waiter whose limit is reached, until
// it leaves.
func TestReleaseGoesByTheLimitOfTheWaiter(t *testing.T) {
	onEvery(t, ofThree, func(t *testing.T, w *world) {
		three := w.locker(t)
		held := fill(t, three, 3)
		low := waitInLine(t, newSemaphore(t, w.Client(t), 1), "k")
		next := waitInLine(t, w.locker(t), "k")
		for _, lock := range held[:2] {
			require.NoError(t, lock.Unlock(t.Context()))
			_, err := three.TryLock(t.Context(), "k")
			requireOnly(t, err, redlatch.ErrNotAcquired)
		}
		requireHolders(t, three, 1)
		require.Empty(t, low)
		require.Empty(t, next)
		require.NoError(t, held[2].Unlock(t.Context()))
		alone := await(t, low, "nobody holds a permit")
		require.NoError(t, await(t, next, "its limit is not reached").Unlock(t.Context()))
		require.NoError(t, alone.Unlock(t.Context()))

		held = fill(t, three, 1)
		ctx, leave := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() { // ends with ctx
			_, err := newSemaphore(t, w.Client(t), 1).Lock(ctx, "k")
			left <- err
		}()
		eventually(t, "it queues", func() bool {
			st, err := three.Inspect(t.Context(), "k")
			return err == nil && st.Waiters == 1
		})
		next = waitInLine(t, w.locker(t), "k")
		leave()
		requireOnly(t, await(t, left, "ctx has ended"), redlatch.ErrNotAcquired)
		require.NoError(t, await(t, next, "nobody is before it").Unlock(t.Context()))
		require.NoError(t, held[0].Unlock(t.Context()))
		onlyFences(t, w.Direct)
	})
}

// TestSilentWaiterKeepsOthersBackForSeconds: its limit is reached, and its process is frozen, or
// gone from a Cluster. That also holds if the clock of Redis is set back meanwhile.
func TestSilentWaiterKeepsOthersBackForSeconds(t *testing.T) {
	onEvery(t, ofThree, func(t *testing.T, w *world) {
		for _, step := range []time.Duration{0, -time.Hour} {
			l := w.locker(t)
			held := mustLock(t, l, "k")
			entry := redis.Z{Score: 1, Member: "2000:1 -redlatch:nobody somebody"}
			require.NoError(t, w.Direct.ZAdd(t.Context(), "{k}:permits:k", entry).Err())
			begin := time.Now()
			_, err := l.TryLock(t.Context(), "k")
			requireOnly(t, err, redlatch.ErrNotAcquired)
			w.Step(step)
			lock, err := w.locker(t).Lock(t.Context(), "k")
			require.NoError(t, err)
			require.InDelta(t, 4, time.Since(begin).Seconds(), 1)
			require.NoError(t, lock.Unlock(t.Context()))
			require.NoError(t, held.Unlock(t.Context()))
			onlyFences(t, w.Direct)
		}
	})
}

// TestSomebodysSortedSetIsLeftAlone: a sorted set that is no semaphore, or the key of another
// strategy, stays as it is. It is an error that retrying cannot fix, also for Lead. To the holder
// of a permit it is a lost lock.
func TestSomebodysSortedSetIsLeftAlone(t *testing.T) {
	onEvery(t, ofThree, func(t *testing.T, w *world) {
		l, lock := w.locker(t, redlatch.WithoutRenewal()), newLocker(t, w.Client(t))
		theirs := []redis.Z{{Score: 1, Member: "alice"}, {Score: 1e18, Member: "bob"}}
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
			requireOnly(t, ask(), rediserr.ErrOtherData, op)
		}
		require.ErrorIs(t, permits[0].Unlock(t.Context()), redlatch.ErrLost)
		require.ErrorIs(t, permits[1].Extend(t.Context(), time.Hour), redlatch.ErrLost)
		require.Equal(t, theirs, w.Direct.ZRangeWithScores(t.Context(), "k", 0, -1).Val())
		require.NoError(t, w.Direct.Del(t.Context(), "k").Err())
		held := mustLock(t, lock, "k")
		_, err := l.Lock(t.Context(), "k")
		require.ErrorContains(t, err, "WRONGTYPE")
		require.NoError(t, held.Unlock(t.Context()))
	})
}

// distant has each command, and each pipeline, take so long. It sends the commands of a pipeline
// one by one: one that is longer than the buffer of miniredis would wait for itself on a connection
// without a buffer.
type distant time.Duration

func (distant) DialHook(next redis.DialHook) redis.DialHook { return next }

func (d distant) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		defer time.Sleep(time.Duration(d))
		return next(ctx, cmd)
	}
}

func (d distant) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		defer time.Sleep(time.Duration(d))
		return redistest.OnProcess(func(next redis.ProcessHook) redis.ProcessHook { return next }).ProcessPipelineHook(next)(ctx, cmds)
	}
}

// TestOneCallerMoreThanPermitsCostsNoRate: the callers of a process are granted permits side by
// side, also while they wait for them. Each is served as often as the others.
func TestOneCallerMoreThanPermitsCostsNoRate(t *testing.T) {
	for _, roundTrip := range []time.Duration{time.Millisecond, 5 * time.Millisecond} {
		t.Run(roundTrip.String(), func(t *testing.T) {
			t.Parallel()
			const limit = 10
			asMany, _ := grantsOfCrowd(t, roundTrip, limit, limit)
			for _, callers := range []int{limit + 1, 2 * limit} {
				grants, each := grantsOfCrowd(t, roundTrip, limit, callers)
				require.GreaterOrEqual(t, 10*grants, 8*asMany, "%d callers", callers)
				require.Greater(t, 4*slices.Min(each), 3*slices.Max(each), "%d callers: %v", callers, each)
			}
		})
	}
}

// grantsOfCrowd returns how often callers of one process are granted one of limit permits in half a
// second, in all and each. They hold it for 5 ms.
func grantsOfCrowd(t *testing.T, roundTrip time.Duration, limit, callers int) (all int64, each []int64) {
	each = make([]int64, callers)
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		client := s.Client(t)
		client.AddHook(distant(roundTrip))
		l := newSemaphore(t, client, limit)
		var crowd sync.WaitGroup
		begin := time.Now()
		for i := range each {
			crowd.Go(func() {
				for time.Since(begin) < time.Second/2 {
					lock, err := l.Lock(t.Context(), "k")
					if !assert.NoError(t, err) {
						return
					}
					each[i]++
					time.Sleep(5 * time.Millisecond)
					assert.NoError(t, lock.Unlock(t.Context()))
				}
			})
		}
		crowd.Wait()
		onlyFences(t, s.Direct)
	})
	for _, n := range each {
		all += n
	}
	return all, each
}

// TestRefusalOfOtherDataNamesTheKey: that of Redis, with the prefix.
func TestRefusalOfOtherDataNamesTheKey(t *testing.T) {
	t.Parallel()
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		l := newSemaphore(t, s.Client(t), 3, redlatch.WithKeyPrefix("app:"))
		require.NoError(t, s.Direct.ZAdd(t.Context(), "app:k", redis.Z{Score: 7, Member: "seven"}).Err())
		_, err := l.TryLock(t.Context(), "k")
		require.ErrorContains(t, err, "WRONGTYPE app:k is not a semaphore")
		_, err = l.Inspect(t.Context(), "k")
		require.ErrorContains(t, err, "WRONGTYPE app:k is not a semaphore")
	})
}

// TestPermitOfAnEarlierLineLeavesTheLinesAlone: a process has one line for each permit at most, so that its crowd
// costs Redis no more than that, also when the holder of a permit unlocks it whose line has ended.
func TestPermitOfAnEarlierLineLeavesTheLinesAlone(t *testing.T) {
	onEvery(t, ofThree, func(t *testing.T, w *world) {
		const limit = 3
		held := fill(t, w.locker(t), limit)
		l := w.locker(t)
		first := locktest.Standing(t, l)
		require.NoError(t, held[0].Unlock(t.Context()))
		lock := <-first // nobody waits in its line
		var crowd []<-chan *redlatch.Lock
		stand := func(n int) {
			for range n {
				crowd = append(crowd, locktest.Standing(t, l))
			}
			st, err := l.Inspect(t.Context(), "k")
			require.NoError(t, err)
			require.Equal(t, limit, st.Waiters)
		}
		stand(2 * limit)
		require.NoError(t, lock.Unlock(t.Context()))
		stand(limit)
		for _, lock := range held[1:] {
			require.NoError(t, lock.Unlock(t.Context()))
		}
		for _, got := range crowd {
			require.NoError(t, (<-got).Unlock(t.Context()))
		}
	})
}
