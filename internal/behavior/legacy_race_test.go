package behavior_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/faultproxy"
	"github.com/redlatch/redlatch/internal/locktest"
)

// foreign is a client in another language, which follows the documentation of SETNX to the letter.
type foreign struct {
	client  *redis.Client
	key     string
	timeout int64 // s
	value   int64 // what it wrote last
}

// next is <current Unix time + lock timeout + 1>.
func (f *foreign) next() int64 {
	f.value = time.Now().Unix() + f.timeout + 1
	return f.value
}

// tryLock is steps 1 to 3.
func (f *foreign) tryLock(ctx context.Context) (bool, error) {
	n, err := f.client.Do(ctx, "SETNX", f.key, f.next()).Int()
	if err != nil || n == 1 {
		return err == nil, err
	}
	seen, err := f.expired(ctx)
	if err != nil || seen == "" {
		return false, err
	}
	return f.takes(ctx, seen)
}

// expired is step 2. It returns the value whose time has passed, or "".
func (f *foreign) expired(ctx context.Context) (string, error) {
	seen, err := f.client.Do(ctx, "GET", f.key).Text()
	if err != nil {
		return "", locktest.IgnoreNil(err)
	}
	value, err := strconv.ParseInt(seen, 10, 64)
	if err != nil || time.Now().Unix() <= value {
		return "", err
	}
	return seen, nil
}

// takes is step 3.
func (f *foreign) takes(ctx context.Context, seen string) (bool, error) {
	old, err := f.client.Do(ctx, "GETSET", f.key, f.next()).Text()
	return err == nil && old == seen, locktest.IgnoreNil(err)
}

// unlock is step 4.
func (f *foreign) unlock(ctx context.Context) error {
	if time.Now().Unix() > f.value {
		return nil
	}
	return f.client.Do(ctx, "DEL", f.key).Err()
}

// waitFor polls until the foreign client has the lock.
func (f *foreign) waitFor(t *testing.T) {
	t.Helper()
	eventually(t, "the foreign client acquires the lock", func() bool {
		ok, err := f.tryLock(t.Context())
		require.NoError(t, err)
		return ok
	})
}

// race has all lockers try to lock key at once. It returns the indexes of those that succeeded, and their locks.
func race(t *testing.T, lockers []redlatch.Locker, key string) (winners []int, locks []*redlatch.Lock) {
	t.Helper()
	var (
		start = make(chan struct{})
		wg    sync.WaitGroup
		got   = make([]*redlatch.Lock, len(lockers))
		errs  = make([]error, len(lockers))
	)
	for i, l := range lockers {
		wg.Go(func() {
			<-start
			got[i], errs[i] = l.TryLock(t.Context(), key)
		})
	}
	close(start)
	wg.Wait()
	for i, err := range errs {
		if err == nil {
			winners, locks = append(winners, i), append(locks, got[i])
		} else {
			require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		}
	}
	return winners, locks
}

// TestLegacyExpiredKeyHasOneWinner: clients with different TTLs race for an expired key. One of them wins, and the
// key holds exactly the value that it wrote.
func TestLegacyExpiredKeyHasOneWinner(t *testing.T) {
	const clients, rounds = 16, 200
	locktest.OnBoth(t, func(t *testing.T, s *locktest.Site) {
		var lockers []redlatch.Locker
		for i := range clients {
			ttl := time.Duration(2+3*i) * time.Second // to 47 s
			lockers = append(lockers, newLegacy(t, s.Client(t), redlatch.WithTTL(ttl)))
		}
		for range rounds {
			setIn(t, s, "k", time.Now().Unix()-rand.N(int64(100))-1)
			before := time.Now().Unix()
			winners, locks := race(t, lockers, "k")
			require.Len(t, winners, 1)
			timeout := int64(2 + 3*winners[0])
			require.GreaterOrEqual(t, stampIn(t, s, "k"), before+timeout+1)
			require.LessOrEqual(t, stampIn(t, s, "k"), time.Now().Unix()+timeout+1)
			require.Equal(t, stampIn(t, s, "k"), stampIn(t, s, "{k}:stamp:k"))
			require.Equal(t, locks[0].Token(), s.Direct.Get(t.Context(), "{k}:owner:k").Val())
			require.NoError(t, locks[0].Unlock(t.Context()))
		}
	})
}

// TestLegacyOneValueIsNotOneOwner: clients with the same TTL write the same value within a second, and
// still only one of them acquires the lock. Those whose first reply was lost send again.
func TestLegacyOneValueIsNotOneOwner(t *testing.T) {
	const clients, rounds = 12, 40
	locktest.OnBoth(t, func(t *testing.T, s *locktest.Site) {
		for _, lossy := range []bool{false, true} {
			for _, state := range []string{"free", "expired"} {
				t.Run(fmt.Sprintf("%s, replies lost: %t", state, lossy), func(t *testing.T) {
					t.Parallel()
					var proxies []*faultproxy.Proxy
					var lockers []redlatch.Locker
					key := t.Name()
					for range clients {
						p, client := proxied(t, s)
						proxies = append(proxies, p)
						lockers = append(lockers, newLegacy(t, client))
						require.NoError(t, mustLock(t, lockers[len(lockers)-1], key).Unlock(t.Context()))
					}
					for range rounds {
						if state == "expired" {
							setIn(t, s, key, time.Now().Unix()-1)
						}
						if lossy {
							for _, p := range proxies {
								p.LoseReplies(1, "evalsha")
							}
						}
						winners, locks := race(t, lockers, key)
						require.Len(t, winners, 1)
						require.NoError(t, locks[0].Err())
						require.NoError(t, locks[0].Unlock(t.Context()))
					}
					if lossy {
						for _, p := range proxies {
							require.Equal(t, rounds, p.Lost())
						}
					}
				})
			}
		}
	})
}

// TestLegacyAndForeignClientsTakeTurns: redlatch and foreign clients exclude each other, and each takes over when the
// time of the other has passed.
func TestLegacyAndForeignClientsTakeTurns(t *testing.T) {
	locktest.OnBothInTime(t, func(t *testing.T, s *locktest.Site) {
		l := newLegacy(t, s.Client(t), redlatch.WithTTL(time.Second))
		f := &foreign{client: s.Client(t), key: "k", timeout: 1}

		crashed := mustLock(t, l, "k")
		ok, err := f.tryLock(t.Context())
		require.NoError(t, err)
		require.False(t, ok)
		f.waitFor(t)
		require.ErrorIs(t, crashed.Err(), redlatch.ErrLost, "noticed before the next owner has acquired the lock")

		_, err = l.TryLock(t.Context(), "k")
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		lock, err := l.Lock(t.Context(), "k", redlatch.WithTTL(time.Minute))
		require.NoError(t, err)
		require.Greater(t, time.Now().Unix(), f.value, "not before its time has passed")
		require.NoError(t, f.unlock(t.Context()))
		ok, err = f.tryLock(t.Context())
		require.NoError(t, err)
		require.False(t, ok)
		require.NoError(t, lock.Unlock(t.Context()))

		ok, err = f.tryLock(t.Context())
		require.NoError(t, err)
		require.True(t, ok)
		require.NoError(t, f.unlock(t.Context()))
		require.NoError(t, mustLock(t, l, "k").Unlock(t.Context()))
		require.Empty(t, everything(t, s))
	})
}

// TestLegacyLateUnlockLeavesTheSuccessor: Unlock changes nothing after the time of the lock has passed,
// whether or not another client took over.
func TestLegacyLateUnlockLeavesTheSuccessor(t *testing.T) {
	locktest.OnBothInTime(t, func(t *testing.T, s *locktest.Site) {
		l := newLegacy(t, s.Client(t), redlatch.WithTTL(time.Second))
		alone, robbed, followed := mustLock(t, l, "alone"), mustLock(t, l, "robbed"), mustLock(t, l, "followed")
		value := s.Direct.Get(t.Context(), "alone").Val()

		f := &foreign{client: s.Client(t), key: "robbed", timeout: 100}
		f.waitFor(t)
		next, err := l.Lock(t.Context(), "followed", redlatch.WithTTL(time.Minute))
		require.NoError(t, err)
		before := stampIn(t, s, "followed")
		eventually(t, "its time has passed", func() bool {
			st, err := l.Inspect(t.Context(), "alone")
			return err == nil && !st.Held
		})

		for _, late := range []*redlatch.Lock{alone, robbed, followed} {
			require.ErrorIs(t, late.Unlock(t.Context()), redlatch.ErrLost)
		}
		require.Equal(t, value, s.Direct.Get(t.Context(), "alone").Val())
		require.Equal(t, f.value, stampIn(t, s, "robbed"))
		require.Equal(t, before, stampIn(t, s, "followed"))
		require.NoError(t, next.Unlock(t.Context()))
	})
}

// TestLegacyForeignLoserIsNoticed: a foreign client that lost the race to us overwrites our time with one that passes
// sooner. We notice that before the next client acquires the lock.
func TestLegacyForeignLoserIsNoticed(t *testing.T) {
	locktest.OnBothInTime(t, func(t *testing.T, s *locktest.Site) {
		loser := &foreign{client: s.Client(t), key: "k", timeout: 2}
		next := &foreign{client: s.Client(t), key: "k", timeout: 10}
		l := newLegacy(t, s.Client(t), redlatch.WithTTL(30*time.Second))
		var lock *redlatch.Lock
		eventually(t, "the loser writes its time before we look again", func() bool {
			setIn(t, s, "k", time.Now().Unix()-1)
			seen, err := loser.expired(t.Context())
			require.NoError(t, err)
			require.NotEmpty(t, seen)
			begin := time.Now()
			lock = mustLock(t, l, "k")
			ok, err := loser.takes(t.Context(), seen)
			require.NoError(t, err)
			require.False(t, ok)
			return time.Since(begin) < 300*time.Millisecond
		})

		next.waitFor(t)
		select {
		case <-lock.Done():
		default:
			require.Fail(t, "a second owner, and the first has not noticed")
		}
		require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrLost)
		require.Equal(t, next.value, stampIn(t, s, "k"))
	})
}

// TestLegacyFrozenLoserIsNoticedByRenewal: a foreign client that lost the race to us writes its time only after we
// have checked the lock again. The next renewal notices that, although the time is later than ours. It leaves the key
// as it is.
func TestLegacyFrozenLoserIsNoticedByRenewal(t *testing.T) {
	locktest.OnBothInTime(t, func(t *testing.T, s *locktest.Site) {
		loser := &foreign{client: s.Client(t), key: "k", timeout: 100}
		looked := make(chan redlatch.Event, 100)
		l, err := redlatch.NewLegacySetNX(s.Client(t), redlatch.WithTTL(3*time.Second), patience, redlatch.WithHooks(redlatch.Hooks{
			Renewed: func(e redlatch.Event) { looked <- e },
		}))
		require.NoError(t, err)
		setIn(t, s, "k", time.Now().Unix()-1)
		seen, err := loser.expired(t.Context())
		require.NoError(t, err)
		lock := mustLock(t, l, "k")
		taken := time.Now()
		<-looked
		require.Less(t, time.Since(taken), s.Within(500*time.Millisecond))
		ok, err := loser.takes(t.Context(), seen)
		require.NoError(t, err)
		require.False(t, ok)
		select {
		case <-lock.Done():
		case <-time.After(s.Within(1100 * time.Millisecond)):
			require.Fail(t, "not noticed within a renewal interval")
		}
		require.ErrorIs(t, lock.Err(), redlatch.ErrLost)
		require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrLost)
		require.Equal(t, loser.value, stampIn(t, s, "k"))
	})
}

// TestLegacyAndForeignClientsNeverOverlap: 8 clients of each kind lock one key. Some crash while they hold the lock.
// The test runs for 30 s on miniredis and 6 s on real Redis, or the time in REDLATCH_SOAK.
func TestLegacyAndForeignClientsNeverOverlap(t *testing.T) {
	locktest.OnBothInTime(t, func(t *testing.T, s *locktest.Site) {
		length := 30 * time.Second
		if s.Real {
			length = 6 * time.Second
		}
		if soak := os.Getenv("REDLATCH_SOAK"); soak != "" {
			var err error
			length, err = time.ParseDuration(soak)
			require.NoError(t, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), length)
		defer cancel()
		var inside, overlaps, ours, theirs, crashes atomic.Int64
		// enter is the critical section of a holder. It reports whether the holder crashes.
		enter := func(entered *atomic.Int64) (crashed bool) {
			entered.Add(1)
			if inside.Add(1) != 1 {
				overlaps.Add(1)
			}
			<-time.After(rand.N(5 * time.Millisecond))
			inside.Add(-1)
			if rand.N(40) == 0 {
				crashes.Add(1)
				return true
			}
			return false
		}
		pause := func() { <-time.After(rand.N(30 * time.Millisecond)) }
		failures := make(chan error, 16)
		var wg sync.WaitGroup
		for range 8 {
			l := newLegacy(t, s.Client(t), redlatch.WithTTL(time.Second))
			wg.Go(func() {
				for ctx.Err() == nil {
					lock, err := l.Lock(ctx, "k")
					if err == nil && !enter(&ours) {
						err = lock.Unlock(ctx)
					}
					// A foreign loser may have overwritten our time.
					if err != nil && ctx.Err() == nil && !errors.Is(err, redlatch.ErrLost) {
						failures <- err
						return
					}
					pause()
				}
			})
			f := &foreign{client: s.Client(t), key: "k", timeout: 1}
			wg.Go(func() {
				for ctx.Err() == nil {
					ok, err := f.tryLock(ctx)
					if ok && !enter(&theirs) {
						err = f.unlock(ctx)
					}
					if err != nil && ctx.Err() == nil {
						failures <- err
						return
					}
					pause()
				}
			})
		}
		wg.Wait()
		close(failures)
		require.NoError(t, <-failures)
		require.Zero(t, overlaps.Load())
		require.Positive(t, ours.Load())
		require.Positive(t, theirs.Load())
		t.Logf("%d grants of ours, %d of theirs, %d crashes", ours.Load(), theirs.Load(), crashes.Load())
	})
}
