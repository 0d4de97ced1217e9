package behavior_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// mints are the operations that issue a fence. Each prepares its operation and returns a function that carries it
// out, so that a test can change the register in between. Unlock of the returned lock frees the key.
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
		got := waitInLine(t, l, "k")
		return func() *redlatch.Lock {
			require.NoError(t, holder.Unlock(t.Context()))
			lock := <-got
			require.NotNil(t, lock)
			return lock
		}
	},
}

// tickOf returns the tick at an instant: 4 µs each, since 2026.
func tickOf(at time.Time) uint64 {
	return uint64(at.Sub(time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)) / (4 * time.Microsecond))
}

// TestFencesGrowAlthoughTheRegisterIsLost: if the register is deleted or loses increments, the clock of the server
// keeps the fences growing. This holds for each operation that issues a fence.
func TestFencesGrowAlthoughTheRegisterIsLost(t *testing.T) {
	t.Parallel()
	for name, mint := range mints {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			direct := s.Client(t)
			l := newLocker(t, s.Client(t), longTTL)
			for what, lose := range map[string]func(last uint64){
				"evicted":            func(uint64) { require.NoError(t, direct.Del(t.Context(), locktest.RegisterKey).Err()) },
				"after SCRIPT FLUSH": func(uint64) { require.NoError(t, direct.ScriptFlush(t.Context()).Err()) },
				"without five increments, as after a failover": func(last uint64) {
					afterTheGap(t, direct, last)
					require.NoError(t, direct.DecrBy(t.Context(), locktest.RegisterKey, 5).Err())
				},
				"without a second of increments, as after a failover": func(last uint64) {
					afterTheGap(t, direct, last)
					require.NoError(t, direct.DecrBy(t.Context(), locktest.RegisterKey, 250_000).Err())
				},
			} {
				for range 3 {
					first := mustLock(t, l, "first")
					ready := mint(t, l)
					last := lastFence(t, direct)
					require.GreaterOrEqual(t, last, first.Fence())
					lose(last)
					lock := ready()
					require.Greater(t, lock.Fence(), last, what)
					locktest.RequireSoundFences(t, direct)
					require.NoError(t, lock.Unlock(t.Context()))
					require.NoError(t, first.Unlock(t.Context()))
				}
			}
		})
	}
}

// afterTheGap waits until the clock of the server is more than 10 ms ahead of the tick of a fence.
func afterTheGap(t *testing.T, direct *redis.Client, fence uint64) {
	t.Helper()
	eventually(t, "the gap is long enough", func() bool {
		return tickOf(direct.Time(t.Context()).Val()) > fence/locktest.FencesOfTick+2_500
	})
}

// TestFencesGrowOverARestartWithoutData: the restart deletes the register with all other keys.
func TestFencesGrowOverARestartWithoutData(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	l := newLocker(t, s.Client(t), redlatch.WithoutRenewal())
	var seen locktest.FenceLog
	for range 3 {
		seen.Add(mustLock(t, l, "k").Fence())
		s.Kill()
		s.Restart(t)
		require.Zero(t, s.Client(t).DBSize(t.Context()).Val())
		lock := mustLock(t, l, "k")
		seen.Add(lock.Fence())
		require.NoError(t, lock.Unlock(t.Context()))
	}
	seen.RequireGrowth(t, 6)
}

// TestFencesGrowWhileTheClockIsSteppedBack: while eight clients lock a key, the clock of the server is set back by up
// to an hour, and forward again.
func TestFencesGrowWhileTheClockIsSteppedBack(t *testing.T) {
	t.Parallel()
	m := miniredis.RunT(t)
	stop, stepped := make(chan struct{}), make(chan struct{})
	var grants atomic.Int64
	go func() { // the test waits for it below
		defer close(stepped)
		defer close(stop)
		for steps := range 50 {
			m.SetTime(time.Now().Add(-rand.N(time.Hour)))
			for next := grants.Load() + 10; grants.Load() < next; <-time.After(time.Millisecond) {
				if t.Context().Err() != nil {
					return
				}
			}
			if steps%10 == 9 {
				m.SetTime(time.Now())
			}
		}
	}()
	var seen locktest.FenceLog
	var wg sync.WaitGroup
	for range 8 {
		client := redis.NewClient(&redis.Options{Addr: m.Addr()})
		t.Cleanup(func() { _ = client.Close() })
		l := newLocker(t, client)
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				lock, err := l.Lock(t.Context(), "k")
				if err != nil {
					t.Error(err)
					grants.Add(1 << 30)
					return
				}
				seen.Add(lock.Fence())
				grants.Add(1)
				if err := lock.Unlock(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	<-stepped
	seen.RequireGrowth(t, int(grants.Load()))
}

// TestFencesOfAllKeysAreUnique: eight clients lock twelve keys. Each fence is issued once, and the fences of one key
// grow in the order of its grants.
func TestFencesOfAllKeysAreUnique(t *testing.T) {
	t.Parallel()
	const keys, each = 12, 60
	s := redistest.Start(t)
	var all sync.Map // fence to key
	var logs [keys]locktest.FenceLog
	var wg sync.WaitGroup
	for i := range 8 {
		l := newLocker(t, s.Client(t))
		for j := range 4 {
			wg.Go(func() {
				for n := range each {
					k := (i + j + n) % keys
					err := redlatch.Do(t.Context(), l, fmt.Sprint("k", k), func(_ context.Context, lock *redlatch.Lock) error {
						logs[k].Add(lock.Fence())
						if other, taken := all.LoadOrStore(lock.Fence(), k); taken {
							return fmt.Errorf("fence %d of k%d is one of k%d too", lock.Fence(), k, other)
						}
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
	for k := range logs {
		logs[k].RequireGrowth(t, 8*4*each/keys)
	}
	require.Equal(t, []string{locktest.RegisterKey}, s.Client(t).Keys(t.Context(), "*").Val())
}

// TestManyKeysLeaveNothingBehind: the number of keys in Redis does not grow with the number of keys that were locked.
func TestManyKeysLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	const keys = 20_000
	s := redistest.Start(t)
	l := newLocker(t, s.Client(t), longTTL)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 300 {
		wg.Go(func() {
			for n := next.Add(1); n <= keys; n = next.Add(1) {
				lock, err := l.TryLock(t.Context(), "order:"+strconv.FormatInt(n, 10))
				if err == nil {
					err = lock.Unlock(t.Context())
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	direct := s.Client(t)
	eventually(t, "less than ten keys are left", func() bool { return direct.DBSize(t.Context()).Val() < 10 })
	require.Equal(t, int64(1), direct.Exists(t.Context(), locktest.RegisterKey).Val())
	locktest.RequireSoundFences(t, direct)
}

// TestGrantThatIsSentAgainHasANewFence: the reply to the first send is lost, and nobody has its fence. The resend
// gets a new one.
func TestGrantThatIsSentAgainHasANewFence(t *testing.T) {
	direct, p, client := behindProxy(t)
	l := newLocker(t, client)
	warm := mustLock(t, l, "warm")
	_, err := l.Adopt(t.Context(), "warm", warm.Token()) // the scripts are loaded
	require.NoError(t, err)
	require.NoError(t, warm.Unlock(t.Context()))
	for ask, lock := range map[string]func() *redlatch.Lock{
		"acquire": func() *redlatch.Lock { return mustLock(t, l, "k") },
		"adopt": func() *redlatch.Lock {
			require.NoError(t, direct.Set(t.Context(), "k", "a token", time.Minute).Err())
			adopted, err := l.Adopt(t.Context(), "k", "a token")
			require.NoError(t, err)
			return adopted
		},
	} {
		before := lastFence(t, direct)
		require.NoError(t, direct.ConfigResetStat(t.Context()).Err())
		p.LoseReplies(1, "evalsha")
		granted := lock()
		require.Equal(t, 2.0, calls(t, direct, "incr"), ask)
		require.Greater(t, granted.Fence(), before+locktest.FencesOfTick, ask)
		require.Equal(t, lastFence(t, direct), granted.Fence(), ask)
		require.NoError(t, granted.Unlock(t.Context()))
	}
	require.Equal(t, 2, p.Lost())
}

// TestMigrationFencesGrow: the fences of a migration and those of its Locker to are one sequence.
func TestMigrationFencesGrow(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"another prefix", "another server", "LegacySetNX to SetNXPX", "SetNXPX to Redlock"} {
		t.Run(name, func(t *testing.T) {
			onServers(t, func(t *testing.T, clients []*redis.Client) {
				from, to := locktest.Pairs[name](t, clients)
				m := newMigration(t, from, to)
				var seen locktest.FenceLog
				for i := range 20 {
					lock, err := []redlatch.Locker{m, to}[i%2].Lock(t.Context(), "k")
					require.NoError(t, err)
					seen.Add(lock.Fence())
					require.NoError(t, lock.Unlock(t.Context()))
				}
				seen.RequireGrowth(t, 20)
			})
		})
	}
}

// TestNoFenceIsRounded: fences are exact up to the highest one, of the tick 2^47 - 1. Then the register, or the counter of a
// quorum, counts as other data. No fence is issued twice.
func TestNoFenceIsRounded(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"SetNXPX", "Semaphore", "Redlock"} {
		t.Run(strategy, func(t *testing.T) {
			locktest.OnBoth(t, func(t *testing.T, s *locktest.Site) {
				l, err := everyStrategy[strategy](s.Client(t), patience, longTTL, redlatch.WithoutRenewal())
				require.NoError(t, err)
				token := mustLock(t, l, "k").Token()
				register, highest := locktest.RegisterKey, int64(1<<47-1)
				if strategy == "Redlock" {
					register = "{k}:fence:k"
				}
				require.NoError(t, s.Direct.Set(t.Context(), register, highest-2, time.Hour).Err())
				for _, fence := range []uint64{uint64(highest - 1), uint64(highest)} {
					lock, err := l.Adopt(t.Context(), "k", token)
					require.NoError(t, err)
					require.Equal(t, fence*locktest.FencesOfTick, lock.Fence())
				}
				for range 3 {
					_, err := l.Adopt(t.Context(), "k", token)
					require.ErrorContains(t, err, "holds something else")
					require.Equal(t, strconv.FormatInt(highest, 10), s.Direct.Get(t.Context(), register).Val())
					require.Greater(t, s.Direct.PTTL(t.Context(), register).Val(), time.Minute)
				}
				require.NoError(t, s.Direct.Del(t.Context(), register).Err())
				_, err = l.Adopt(t.Context(), "k", token)
				require.NoError(t, err)
			})
		})
	}
}

// TestHandOverWithoutAFenceLocksNothing: a release that cannot mint a fence for the next waiter deletes the
// key. The waiter reports why it is not served, and is served once the register is deleted.
func TestHandOverWithoutAFenceLocksNothing(t *testing.T) {
	t.Parallel()
	onQueues(t, func(t *testing.T, newLocker newLockerFunc) {
		for _, register := range []string{"a shopping list", "9007199254740992", "9223372036854775807"} {
			t.Run(register, func(t *testing.T) {
				t.Parallel()
				s := redistest.Start(t)
				direct := s.Client(t)
				var troubles heard
				l := newLocker(t, s.Client(t), longTTL)
				holder := mustLock(t, l, "k")
				got := waitInLine(t, l, "k", redlatch.WithHooks(redlatch.Hooks{Trouble: troubles.add}))
				require.NoError(t, direct.Set(t.Context(), locktest.RegisterKey, register, time.Hour).Err())
				require.NoError(t, holder.Unlock(t.Context()))
				eventually(t, "the waiter reports it", func() bool { return len(troubles.all()) > 0 })
				require.ErrorContains(t, troubles.all()[0].Err, "redlatch:fence holds something else")
				require.Zero(t, direct.Exists(t.Context(), "k").Val())
				require.Empty(t, got)
				require.Equal(t, register, direct.Get(t.Context(), locktest.RegisterKey).Val())

				require.NoError(t, direct.Del(t.Context(), locktest.RegisterKey).Err())
				lock := <-got
				require.NotNil(t, lock)
				require.Greater(t, lock.Fence(), holder.Fence())
				require.NoError(t, lock.Unlock(t.Context()))
				onlyFences(t, direct)
			})
		}
	})
}
