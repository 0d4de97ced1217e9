package behavior_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/redistest"
)

var newSemaphore = locktest.Semaphore

// limits are the limits that onLimits runs a test for.
var limits = []int{1, 2, 3, 100}

// onLimits runs a test for each limit, on miniredis and on real Redis.
func onLimits(t *testing.T, test func(t *testing.T, s *locktest.Site, limit int)) {
	t.Parallel()
	for _, limit := range limits {
		t.Run(fmt.Sprint("limit ", limit), func(t *testing.T) {
			locktest.OnBoth(t, func(t *testing.T, s *locktest.Site) { test(t, s, limit) })
		})
	}
}

// fill acquires limit permits of key.
func fill(t *testing.T, l redlatch.Locker, key string, limit int, opts ...redlatch.Option) []*redlatch.Lock {
	t.Helper()
	locks := make([]*redlatch.Lock, limit)
	for i := range locks {
		locks[i] = mustLock(t, l, key, opts...)
	}
	return locks
}

// holders returns how many tokens hold a permit of key, according to Inspect.
func holders(t *testing.T, l redlatch.Locker, key string) int {
	t.Helper()
	st, err := l.Inspect(t.Context(), key)
	require.NoError(t, err)
	require.Equal(t, st.Holders > 0, st.Held)
	return st.Holders
}

// TestLimitIsReachedAndNotPassed: each permit has a higher fence than the one before. Once all permits are
// taken, the next call is refused. Once all are released, the key is gone.
func TestLimitIsReachedAndNotPassed(t *testing.T) {
	onLimits(t, func(t *testing.T, s *locktest.Site, limit int) {
		l, others := newSemaphore(t, s.Client(t), limit), newSemaphore(t, s.Client(t), limit, redlatch.WithOwner("others"))
		var fence uint64
		locks := fill(t, others, "k", limit)
		for i, lock := range locks {
			require.Greater(t, lock.Fence(), fence, "permit %d", i)
			fence = lock.Fence()
		}
		_, err := l.TryLock(t.Context(), "k")
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		held, ok := errors.AsType[*redlatch.HeldError](err)
		require.True(t, ok)
		require.Equal(t, "others", held.Owner)
		require.InDelta(t, 10*time.Second, held.TTL, float64(9*time.Second))
		for i, lock := range locks {
			require.Equal(t, limit-i, holders(t, l, "k"))
			require.NoError(t, lock.Unlock(t.Context()))
		}
		require.Zero(t, s.Direct.Exists(t.Context(), "k").Val())
	})
}

// TestNeverMoreThanLimitHold: a crowd of three processes never holds more permits than the limit.
func TestNeverMoreThanLimitHold(t *testing.T) {
	onLimits(t, func(t *testing.T, s *locktest.Site, limit int) {
		var inside locktest.Peak
		var crowd sync.WaitGroup
		for range 3 {
			l := newSemaphore(t, s.Client(t), limit)
			for range min(limit, 10) + 2 {
				crowd.Go(func() {
					for range 10 {
						err := redlatch.Do(t.Context(), l, "k", func(context.Context, *redlatch.Lock) error {
							inside.Enter()
							<-time.After(time.Millisecond)
							inside.Leave()
							return nil
						})
						if err != nil {
							t.Errorf("Do: %v", err)
						}
					}
				})
			}
		}
		crowd.Wait()
		require.LessOrEqual(t, inside.Most(), limit)
		require.GreaterOrEqual(t, inside.Most(), min(limit, 4), "holders work side by side")
		eventually(t, "nothing is left", func() bool { return s.Direct.Exists(t.Context(), "k", "{k}:permits:k").Val() == 0 })
	})
}

// TestSeveralPermitsAreNotPassedOn: while one permit of a semaphore is passed on, another may be granted. So each
// grant mints its own fence, which is the last of the register.
func TestSeveralPermitsAreNotPassedOn(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		l := newSemaphore(t, s.Client(t), 2)
		held := fill(t, newSemaphore(t, s.Client(t), 2), "k", 2)
		first := waitInLine(t, l, "k")
		second := make(chan *redlatch.Lock, 1)
		go func() { // ends with the lock
			lock, err := l.Lock(t.Context(), "k")
			assert.NoError(t, err)
			second <- lock
		}()
		synctest.Wait() // both are in line
		last := func(lock *redlatch.Lock) { require.Equal(t, lastFence(t, s.Direct), lock.Fence()) }
		require.NoError(t, held[0].Unlock(t.Context()))
		lock := <-first
		last(lock)
		require.NoError(t, lock.Unlock(t.Context()))
		lock = <-second
		last(lock)
		require.NoError(t, lock.Unlock(t.Context()))
		require.NoError(t, held[1].Unlock(t.Context()))
	})
}

// TestPermitsAreGrantedInTheOrderOfArrival: as many waiters are served as permits come free, and those who
// have waited longest come first.
func TestPermitsAreGrantedInTheOrderOfArrival(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{1, 2, 3} {
		t.Run(fmt.Sprint("limit ", limit), func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			held := fill(t, newSemaphore(t, s.Client(t), limit), "k", limit)
			var line []<-chan *redlatch.Lock
			shared := newSemaphore(t, s.Client(t), limit)
			for i := range 3 * limit {
				l := shared // every other waiter is of one process
				if i%2 == 0 {
					l = newSemaphore(t, s.Client(t), limit)
				}
				line = append(line, waitInLine(t, l, "k", alone))
			}
			for len(line) > 0 {
				for _, lock := range held {
					require.NoError(t, lock.Unlock(t.Context()))
				}
				for i := range held {
					held[i] = <-line[i]
					require.NotNil(t, held[i])
				}
				line = line[limit:]
				for _, later := range line {
					require.Empty(t, later, "served before its turn")
				}
				require.Equal(t, limit, holders(t, shared, "k"))
			}
			for _, lock := range held {
				require.NoError(t, lock.Unlock(t.Context()))
			}
			onlyFences(t, s.Client(t))
		})
	}
}

// TestExpiredPermitGoesToTheLongestWaiter: a caller that finds an expired permit hands it to a waiter, and
// gets none itself.
func TestExpiredPermitGoesToTheLongestWaiter(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	l := newSemaphore(t, s.Client(t), 3)
	kept := mustLock(t, l, "k", longTTL)
	for range 2 {
		mustLock(t, l, "k", redlatch.WithoutRenewal(), redlatch.WithTTL(2*time.Second))
	}
	first, second := waitInLine(t, l, "k"), waitInLine(t, newSemaphore(t, s.Client(t), 3), "k")
	hasty := newSemaphore(t, s.Client(t), 3)
	eventually(t, "both are served", func() bool {
		_, err := hasty.TryLock(t.Context(), "k")
		require.ErrorIs(t, err, redlatch.ErrNotAcquired, "overtaken")
		return len(first) == 1 && len(second) == 1
	})
	require.NoError(t, (<-first).Unlock(t.Context()))
	require.NoError(t, (<-second).Unlock(t.Context()))
	require.Equal(t, 1, holders(t, hasty, "k"))
	require.NoError(t, kept.Unlock(t.Context()))
	onlyFences(t, s.Client(t))
}

// TestCrashedHoldersCostTheirTTL: for permits that nobody releases: they count until they expire and no
// longer, whatever the TTLs of the others are.
func TestCrashedHoldersCostTheirTTL(t *testing.T) {
	locktest.OnBothInTime(t, func(t *testing.T, s *locktest.Site) {
		l := newSemaphore(t, s.Client(t), 3, redlatch.WithoutRenewal())
		long := mustLock(t, l, "k", redlatch.WithTTL(time.Hour))
		begin := time.Now()
		mustLock(t, l, "k", redlatch.WithTTL(2*time.Second))
		mustLock(t, l, "k", redlatch.WithTTL(time.Second))
		_, err := l.TryLock(t.Context(), "k")
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)

		third, err := l.Lock(t.Context(), "k", redlatch.WithTTL(time.Hour))
		require.NoError(t, err)
		require.GreaterOrEqual(t, time.Since(begin), time.Second-10*time.Millisecond)
		require.Less(t, time.Since(begin), s.Within(1100*time.Millisecond))
		second, err := l.Lock(t.Context(), "k", redlatch.WithTTL(time.Minute))
		require.NoError(t, err)
		require.GreaterOrEqual(t, time.Since(begin), 2*time.Second-10*time.Millisecond)
		for _, lock := range []*redlatch.Lock{long, second, third} {
			require.NoError(t, lock.Err())
		}
		require.Greater(t, s.Direct.PTTL(t.Context(), "k").Val(), 55*time.Minute, "the set outlives the longest lease")
		require.NoError(t, long.Unlock(t.Context()))
		require.NoError(t, third.Unlock(t.Context()))
		require.NoError(t, second.Unlock(t.Context()))
		require.Zero(t, s.Direct.Exists(t.Context(), "k").Val())
	})
}

// TestEachCallerBringsItsLimit: a caller is granted a permit while fewer than its own limit are held.
func TestEachCallerBringsItsLimit(t *testing.T) {
	locktest.OnBothInTime(t, func(t *testing.T, s *locktest.Site) {
		two, three := newSemaphore(t, s.Client(t), 2), newSemaphore(t, s.Client(t), 3)
		held := fill(t, two, "k", 2)
		held = append(held, mustLock(t, three, "k"))
		for _, l := range []redlatch.Locker{two, three} {
			_, err := l.TryLock(t.Context(), "k")
			require.ErrorIs(t, err, redlatch.ErrNotAcquired)
			require.Equal(t, 3, holders(t, l, "k"))
		}
		require.NoError(t, held[2].Unlock(t.Context()))
		_, err := two.TryLock(t.Context(), "k")
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		held[2] = mustLock(t, three, "k")
		for _, lock := range held {
			require.NoError(t, lock.Unlock(t.Context()))
		}
		require.Zero(t, s.Direct.Exists(t.Context(), "k").Val())
	})
}

// TestPermitIsTakenOnce: a command that is sent again after a lost reply takes no second permit, and
// releases no permit of another token.
func TestPermitIsTakenOnce(t *testing.T) {
	t.Parallel()
	direct, p, client := behindProxy(t)
	l, others := newSemaphore(t, client, 3), newSemaphore(t, direct, 3)
	other := mustLock(t, others, "k")
	lose := func() { p.LoseReplies(1, "evalsha") }
	mustLock(t, l, "warm up") // the scripts are loaded
	lose()
	lock := mustLock(t, l, "k")
	require.Equal(t, 2, holders(t, others, "k"))
	lose()
	require.NoError(t, lock.Extend(t.Context(), time.Minute))
	lose()
	adopted, err := l.Adopt(t.Context(), "k", lock.Token())
	require.NoError(t, err)
	require.Greater(t, adopted.Fence(), lock.Fence())
	require.Equal(t, 2, holders(t, others, "k"))
	lose()
	require.NoError(t, lock.Unlock(t.Context()))
	require.Equal(t, 1, holders(t, others, "k"))
	require.ErrorIs(t, adopted.Unlock(t.Context()), redlatch.ErrLost)
	require.NoError(t, other.Unlock(t.Context()))
	require.Zero(t, direct.Exists(t.Context(), "k").Val())
}

// TestLostMessagesCostASecond: many permits are released at once, and messages to a process are lost. All
// its waiters find their permits.
func TestLostMessagesCostASecond(t *testing.T) {
	t.Parallel()
	const limit = 60
	s := redistest.Start(t)
	held := fill(t, newSemaphore(t, s.Client(t), limit), "k", limit)
	o := s.Options()
	var deaf atomic.Bool
	o.Dialer = deafDialer(&deaf)
	c := redis.NewClient(o)
	t.Cleanup(func() { _ = c.Close() })
	l := newSemaphore(t, c, limit)
	var line []<-chan *redlatch.Lock
	for range limit {
		line = append(line, joinLine(t, l, "k"))
	}
	queued(t, l, "k", 1)
	eventually(t, "the process listens", func() bool {
		return len(s.Client(t).PubSubChannels(t.Context(), "redlatch:*").Val()) == 1
	})
	deaf.Store(true)
	begin := time.Now()
	for _, lock := range held {
		require.NoError(t, lock.Unlock(t.Context()))
	}
	for i, got := range line {
		lock := <-got
		if i == 0 { // served by a look, since all messages were lost
			deaf.Store(false)
		}
		require.NotNil(t, lock)
		require.NoError(t, lock.Err())
	}
	require.Less(t, time.Since(begin), 8*time.Second, "the waiters looked for their permits one after the other")
}

// TestLostMessageToALaterWaiterCostsASecond: a process has two lines for a key. The message to the later one is
// lost, and the look of the earlier one finds no permit for itself. The later one is still served in time.
func TestLostMessageToALaterWaiterCostsASecond(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	direct := s.Client(t)
	held := fill(t, newSemaphore(t, s.Client(t), 2, longTTL), "k", 2)
	o := s.Options()
	var deaf atomic.Bool
	o.Dialer = deafDialer(&deaf)
	c := redis.NewClient(o)
	t.Cleanup(func() { _ = c.Close() })
	l := newSemaphore(t, c, 2, longTTL)
	early, late := waitInLine(t, l, "k"), waitInLine(t, l, "k", alone)
	eventually(t, "the process listens", func() bool {
		return len(direct.PubSubChannels(t.Context(), "redlatch:*").Val()) == 1
	})
	deaf.Store(true)
	// As if both attempts had been in flight at once, and Redis had run them in the other order.
	entries := direct.ZRange(t.Context(), "{k}:permits:k", 0, -1).Val()
	require.Len(t, entries, 2)
	require.NoError(t, direct.ZAdd(t.Context(), "{k}:permits:k", redis.Z{Score: 0.5, Member: entries[1]}).Err())
	begin := time.Now()
	require.NoError(t, held[1].Unlock(t.Context()))
	lock := <-late
	require.NotNil(t, lock)
	require.Less(t, time.Since(begin), 3*time.Second)
	require.Empty(t, early)
	require.NoError(t, lock.Unlock(t.Context()))
	require.NotNil(t, <-early)
}

// TestFrozenWaitersOfASemaphoreCostOneClaim: a frozen process is handed two permits. They expire together, and it
// is handed none again.
func TestFrozenWaitersOfASemaphoreCostOneClaim(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	direct := s.Client(t)
	l := newSemaphore(t, s.Client(t), 2)
	held := fill(t, l, "k", 2)
	frozen := direct.Subscribe(t.Context(), "redlatch:frozen") // listens, and does nothing
	t.Cleanup(func() { _ = frozen.Close() })
	_, err := frozen.Receive(t.Context())
	require.NoError(t, err)
	for i := range 2 {
		require.NoError(t, direct.ZAdd(t.Context(), "{k}:permits:k", redis.Z{
			Score: float64(i + 1), Member: fmt.Sprintf("1000 redlatch:frozen a-token-%d", i),
		}).Err())
	}
	first, second := waitInLine(t, l, "k"), waitInLine(t, l, "k", alone)
	begin := time.Now()
	for _, lock := range held {
		require.NoError(t, lock.Unlock(t.Context()))
	}
	for _, got := range []<-chan *redlatch.Lock{first, second} {
		lock := <-got
		require.NotNil(t, lock)
		require.GreaterOrEqual(t, time.Since(begin), time.Second)
		require.NoError(t, lock.Unlock(t.Context()))
	}
	require.Less(t, time.Since(begin), 3*time.Second)
	onlyFences(t, direct)
}

// TestReleaseSkipsThoseWhoCannotHear: for processes that have ended: the next waiter whose process listens
// is served at once.
func TestReleaseSkipsThoseWhoCannotHear(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	l := newSemaphore(t, s.Client(t), 2)
	held := fill(t, l, "k", 2)
	for i, entry := range []string{"nonsense", "2 10000 redlatch:gone a", "2 10000 redlatch:gone b"} {
		require.NoError(t, s.Client(t).ZAdd(t.Context(), "{k}:permits:k", redis.Z{Score: float64(i+1) / 100, Member: entry}).Err())
	}
	got := waitInLine(t, l, "k")
	begin := time.Now()
	require.NoError(t, held[0].Unlock(t.Context()))
	lock := <-got
	require.NotNil(t, lock)
	require.Less(t, time.Since(begin), 5*time.Second, "one dead entry would cost 10 s")
	require.NoError(t, lock.Unlock(t.Context()))
	require.NoError(t, held[1].Unlock(t.Context()))
	onlyFences(t, s.Client(t))
}

// TestEndedPermitsOfALiveProcessKeepItsPlaces: if a holder lets a handed permit expire, its process is not
// taken for frozen, and its other waiters keep their places.
func TestEndedPermitsOfALiveProcessKeepItsPlaces(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	l := newSemaphore(t, s.Client(t), 1)
	holder := mustLock(t, l, "k")
	// The drift leaves the process 600 ms to report the end of the lease before the permit expires.
	short := waitInLine(t, l, "k", redlatch.WithoutRenewal(), redlatch.WithTTL(2*time.Second), redlatch.WithDrift(0.3))
	next := waitInLine(t, l, "k")
	last := waitInLine(t, newSemaphore(t, s.Client(t), 1), "k")
	require.NoError(t, holder.Unlock(t.Context()))
	lapsed := <-short
	require.NotNil(t, lapsed)
	var lock *redlatch.Lock
	select {
	case lock = <-next:
	case <-last:
	}
	require.NotNil(t, lock, "the waiter of another process was served first")
	require.ErrorIs(t, lapsed.Err(), redlatch.ErrLost)
	require.ErrorIs(t, lapsed.Unlock(t.Context()), redlatch.ErrLost)
	require.NoError(t, lock.Unlock(t.Context()))
	require.NoError(t, (<-last).Unlock(t.Context()))
}

// TestSomebodysSortedSetIsLeftAlone: a sorted set that is no semaphore stays as it is. It is an error
// that retrying cannot fix, also for Lead. To the holder of a permit it is a lost lock.
func TestSomebodysSortedSetIsLeftAlone(t *testing.T) {
	for name, theirs := range map[string][]redis.Z{
		"names":           {{Score: 1, Member: "alice"}, {Score: 1e18, Member: "bob"}},
		"an empty member": {{Score: 0, Member: ""}, {Score: 1, Member: "bob"}},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.OnBoth(t, func(t *testing.T, s *locktest.Site) {
				l := newSemaphore(t, s.Client(t), 3, redlatch.WithoutRenewal())
				lock, other := mustLock(t, l, "k"), mustLock(t, l, "k")
				require.NoError(t, s.Direct.Del(t.Context(), "k").Err())
				require.NoError(t, s.Direct.ZAdd(t.Context(), "k", theirs...).Err())

				for op, ask := range map[string]func() error{
					"TryLock": func() error { _, err := l.TryLock(t.Context(), "k"); return err },
					"Lock":    func() error { _, err := l.Lock(t.Context(), "k"); return err },
					"Inspect": func() error { _, err := l.Inspect(t.Context(), "k"); return err },
					"Lead":    func() error { return redlatch.Lead(bounded(t), l, "k", never[*redlatch.Lock](t)) },
				} {
					err := ask()
					require.ErrorIs(t, err, node.ErrOtherData, op)
					require.NotErrorIs(t, err, redlatch.ErrNotAcquired, op)
					require.NotErrorIs(t, err, context.DeadlineExceeded, op)
				}
				_, err := l.Adopt(t.Context(), "k", lock.Token())
				require.ErrorIs(t, err, redlatch.ErrLost)
				require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrLost)
				require.ErrorIs(t, other.Extend(t.Context(), time.Hour), redlatch.ErrLost)
				require.Equal(t, theirs, s.Direct.ZRangeWithScores(t.Context(), "k", 0, -1).Val())
				require.Equal(t, time.Duration(-1), s.Direct.PTTL(t.Context(), "k").Val())
			})
		})
	}
}

// TestLockAndSemaphoreDoNotShareAKey: both ways.
func TestLockAndSemaphoreDoNotShareAKey(t *testing.T) {
	locktest.OnBoth(t, func(t *testing.T, s *locktest.Site) {
		semaphore, lock := newSemaphore(t, s.Client(t), 2), newLocker(t, s.Client(t))
		permit, held := mustLock(t, semaphore, "permit"), mustLock(t, lock, "lock")
		for _, err := range []error{
			func() error { _, err := lock.Lock(t.Context(), "permit"); return err }(),
			func() error { _, err := semaphore.Lock(t.Context(), "lock"); return err }(),
		} {
			require.ErrorContains(t, err, "WRONGTYPE")
			require.NotErrorIs(t, err, redlatch.ErrNotAcquired)
		}
		require.NoError(t, permit.Unlock(t.Context()))
		require.NoError(t, held.Unlock(t.Context()))
	})
}

// expiredNow returns the permit of lock as if its lease had ended an hour ago.
func expiredNow(lock *redlatch.Lock) redis.Z {
	return redis.Z{Score: float64(time.Now().Add(-time.Hour).UnixMicro()), Member: lock.Token()}
}

// TestExpiredPermitIsNotExtended: an expired permit is lost even if nobody has removed it yet. Adopt,
// Extend and Unlock report the loss.
func TestExpiredPermitIsNotExtended(t *testing.T) {
	locktest.OnBoth(t, func(t *testing.T, s *locktest.Site) {
		l := newSemaphore(t, s.Client(t), 2, longTTL)
		lock, other := mustLock(t, l, "k"), mustLock(t, l, "k")
		s.Direct.ZAdd(t.Context(), "k", expiredNow(lock))
		require.Equal(t, 1, holders(t, l, "k"))
		_, err := l.Adopt(t.Context(), "k", lock.Token())
		require.ErrorIs(t, err, redlatch.ErrLost)
		require.ErrorIs(t, lock.Extend(t.Context(), time.Hour), redlatch.ErrLost)
		require.Equal(t, 1, holders(t, l, "k"))

		s.Direct.ZAdd(t.Context(), "k", expiredNow(other))
		require.ErrorIs(t, other.Unlock(t.Context()), redlatch.ErrLost)
		require.Zero(t, s.Direct.Exists(t.Context(), "k").Val())
	})
}

// TestDeletedPermitIsLostAtOnce: also for an extension that knows neither register nor queue.
func TestDeletedPermitIsLostAtOnce(t *testing.T) {
	locktest.OnBoth(t, func(t *testing.T, s *locktest.Site) {
		lock := mustLock(t, newSemaphore(t, s.Client(t), 2, longTTL), "k")
		require.NoError(t, s.Direct.Del(t.Context(), "k").Err())
		require.ErrorIs(t, lock.Extend(t.Context(), time.Hour), redlatch.ErrLost)
	})
}
