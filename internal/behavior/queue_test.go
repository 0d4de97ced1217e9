package behavior_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// onlyFences waits until Redis holds nothing but the fence register.
func onlyFences(t *testing.T, direct *redis.Client) {
	t.Helper()
	eventually(t, "only fences are left", func() bool {
		for _, key := range direct.Keys(context.WithoutCancel(t.Context()), "*").Val() {
			if key != locktest.RegisterKey {
				return false
			}
		}
		return true
	})
}

// TestFirstComeFirstServed: lines are served in the order of their arrival, whatever their processes are. Each
// grant has a higher fence than the one before.
func TestFirstComeFirstServed(t *testing.T) { onQueues(t, testFirstComeFirstServed) }

func testFirstComeFirstServed(t *testing.T, newLocker newLockerFunc) {
	s := redistest.Start(t)
	holder := mustLock(t, newLocker(t, s.Client(t)), "k")
	var line []<-chan *redlatch.Lock
	shared := newLocker(t, s.Client(t))
	for i := range 20 {
		l := shared // every other line is of one process
		if i%2 == 0 {
			l = newLocker(t, s.Client(t))
		}
		line = append(line, waitInLine(t, l, "k", alone))
	}
	locktest.RequireSoundFences(t, s.Client(t))
	fence := holder.Fence()
	require.NoError(t, holder.Unlock(t.Context()))
	for i, got := range line {
		var lock *redlatch.Lock
		select {
		case lock = <-got:
		case <-time.After(10 * time.Second):
		}
		require.NotNil(t, lock, "waiter %d is not served in its turn", i)
		for _, later := range line[i+1:] {
			require.Empty(t, later, "somebody was served before waiter %d", i)
		}
		require.Greater(t, lock.Fence(), fence)
		fence = lock.Fence()
		require.NoError(t, lock.Err())
		require.NoError(t, lock.Unlock(t.Context()))
	}
	onlyFences(t, s.Client(t))
}

// TestHandedLockIsExtendedToItsTTL: a handed lock lasts for a claim, less the drift. Soon its TTL counts.
func TestHandedLockIsExtendedToItsTTL(t *testing.T) { onQueues(t, testHandedLockIsExtendedToItsTTL) }

func testHandedLockIsExtendedToItsTTL(t *testing.T, newLocker newLockerFunc) {
	s := redistest.Start(t)
	l := newLocker(t, s.Client(t))
	holder := mustLock(t, l, "k")
	got := waitInLine(t, l, "k", redlatch.WithTTL(30*time.Second))
	require.NoError(t, holder.Unlock(t.Context()))
	lock := <-got
	require.NotNil(t, lock)
	require.Less(t, time.Until(lock.Until()), 29700*time.Millisecond, "the drift is subtracted")
	eventually(t, "the claim is extended", func() bool { return time.Until(lock.Until()) > 28*time.Second })
	require.Less(t, time.Until(lock.Until()), 29700*time.Millisecond, "the drift is subtracted")
	if left := s.Client(t).PTTL(t.Context(), "k").Val(); left > 0 {
		require.Greater(t, left, 28*time.Second)
	}
	st, err := l.Inspect(t.Context(), "k")
	require.NoError(t, err)
	require.Zero(t, st.Waiters, "nobody waits any more")
	require.NoError(t, lock.Unlock(t.Context()))
	onlyFences(t, s.Client(t))
}

// TestIdleWaitersAreQuiet: 100 waiters in 10 processes send few commands, and the holder's renewals publish nothing.
func TestIdleWaitersAreQuiet(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	admin := s.Client(t)
	renewed := make(chan redlatch.Event, 100)
	holder := mustLock(t, newLocker(t, s.Client(t)), "k", redlatch.WithTTL(3*time.Second), redlatch.WithHooks(redlatch.Hooks{
		Renewed: func(e redlatch.Event) { renewed <- e },
	}))
	require.Equal(t, 0.0, calls(t, admin, "publish"), "no publish without a waiter")
	var line []<-chan *redlatch.Lock
	for i := range 10 {
		l := newLocker(t, s.Client(t))
		for range 10 {
			line = append(line, joinLine(t, l, "k"))
		}
		queued(t, l, "k", i+1)
	}
	began, before := time.Now(), locktest.ClientCommands(t, admin)
	for range 5 { // renewals, one a second
		<-renewed
	}
	rate := (locktest.ClientCommands(t, admin) - before - 5) / time.Since(began).Seconds()
	t.Logf("%.1f commands/s of 100 waiters", rate)
	require.Less(t, rate, 15.0)
	require.Equal(t, 0.0, calls(t, admin, "publish"), "renewals wake nobody")
	require.NoError(t, holder.Unlock(t.Context()))
	var served sync.WaitGroup
	for _, got := range line {
		served.Go(func() {
			if lock := <-got; lock == nil || lock.Unlock(t.Context()) != nil {
				t.Error("not served")
			}
		})
	}
	served.Wait()
}

// joinLine starts a Lock call for a key that is held. It returns once the call stands in the line of l.
func joinLine(t *testing.T, l redlatch.Locker, key string) <-chan *redlatch.Lock {
	t.Helper()
	waits := make(chan redlatch.Event, 1)
	got := make(chan *redlatch.Lock, 1)
	go func() { // the caller owns it; it ends with the lock or with the test, and closes got
		defer close(got)
		hooks := redlatch.WithHooks(redlatch.Hooks{Waiting: func(e redlatch.Event) { waits <- e }})
		if lock, err := l.Lock(t.Context(), key, hooks); err == nil {
			got <- lock
		}
	}()
	eventually(t, "it stands in line", func() bool { return len(waits) == 1 })
	return got
}

// calls returns how often Redis ran a command.
func calls(t *testing.T, admin *redis.Client, command string) (n float64) {
	t.Helper()
	for line := range strings.SplitSeq(admin.Info(t.Context(), "commandstats").Val(), "\r\n") {
		if _, err := fmt.Sscanf(line, "cmdstat_"+command+":calls=%f,", &n); err == nil {
			return n
		}
	}
	return 0
}

// TestGivingUpInTheQueueLeavesNothing: 10,000 waits end at random moments under load,
// some when the lock was just handed over.
func TestGivingUpInTheQueueLeavesNothing(t *testing.T) {
	onQueues(t, testGivingUpInTheQueueLeavesNothing)
}

func testGivingUpInTheQueueLeavesNothing(t *testing.T, newLocker newLockerFunc) {
	s := redistest.Start(t)
	direct := s.Client(t)
	var clients []*redis.Client
	var lockers []redlatch.Locker
	before := runtime.NumGoroutine()
	for range 8 {
		c := redis.NewClient(s.Options())
		clients = append(clients, c)
		lockers = append(lockers, newLocker(t, c))
	}
	var wg sync.WaitGroup
	var gaveUp, failures atomic.Int64
	for i := range 40 {
		wg.Go(func() {
			for range 250 {
				ctx, cancel := context.WithTimeout(t.Context(), rand.N(15*time.Millisecond))
				lock, err := lockers[i%len(lockers)].Lock(ctx, "k")
				switch {
				case err == nil:
					err = lock.Unlock(ctx)
				case ctx.Err() != nil && errors.Is(err, ctx.Err()):
					gaveUp.Add(1)
					err = nil
				}
				if err != nil {
					t.Log(err)
					failures.Add(1)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	t.Logf("%d of 10000 gave up", gaveUp.Load())
	require.Zero(t, failures.Load())
	onlyFences(t, direct)
	for _, c := range clients {
		require.NoError(t, c.Close())
	}
	eventually(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before })
}

// TestLocksDoNotShareAQueue: k and {k} are two locks with one hash tag. Each waiter is granted only the lock that was
// released.
func TestLocksDoNotShareAQueue(t *testing.T) {
	s := redistest.Start(t)
	l, waiting := newLocker(t, s.Client(t)), newLocker(t, s.Client(t))
	for _, keys := range [][2]string{{"k", "{k}"}, {"a", "b"}} {
		one, two := mustLock(t, l, keys[0]), mustLock(t, l, keys[1])
		gotOne := waitInLine(t, waiting, keys[0])
		gotTwo := waitInLine(t, waiting, keys[1])
		require.NoError(t, two.Unlock(t.Context()))
		second := <-gotTwo
		require.NotNil(t, second)
		require.Equal(t, keys[1], second.Key())
		require.Empty(t, gotOne)
		require.Equal(t, one.Token(), s.Client(t).Get(t.Context(), keys[0]).Val())
		require.NoError(t, one.Unlock(t.Context()))
		first := <-gotOne
		require.NotNil(t, first)
		require.NoError(t, second.Unlock(t.Context()))
		require.NoError(t, first.Unlock(t.Context()))
	}
}

// TestQueueOfAnotherTypeKeepsNoLock: other data at the key of the queue stay as they are, and do
// not keep the lock from being released.
func TestQueueOfAnotherTypeKeepsNoLock(t *testing.T) {
	s := redistest.Start(t)
	lock := mustLock(t, newLocker(t, s.Client(t)), "k")
	require.NoError(t, s.Client(t).Set(t.Context(), "{k}:queue:k", "theirs", time.Hour).Err())
	require.NoError(t, lock.Unlock(t.Context()))
	require.Zero(t, s.Client(t).Exists(t.Context(), "k").Val())
	require.Equal(t, "theirs", s.Client(t).Get(t.Context(), "{k}:queue:k").Val())
}

// TestGivingUpTouchesNoStrangersKey: a waiter that gives up leaves another owner's key alone, even if its
// value is empty.
func TestGivingUpTouchesNoStrangersKey(t *testing.T) {
	s := redistest.Start(t)
	direct := s.Client(t)
	require.NoError(t, direct.Set(t.Context(), "k", "", 0).Err())
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := newLocker(t, s.Client(t)).Lock(ctx, "k")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	eventually(t, "the waiter left the queue", func() bool { return direct.Exists(t.Context(), "{k}:queue:k").Val() == 0 })
	require.Equal(t, int64(1), direct.Exists(t.Context(), "k").Val())
}

// TestReleaseLeavesNoGap: a release sets the key to the token of the next waiter, so nobody can overtake it.
func TestReleaseLeavesNoGap(t *testing.T) {
	s := redistest.Start(t)
	holder := mustLock(t, newLocker(t, s.Client(t)), "k")
	got := waitInLine(t, newLocker(t, s.Client(t)), "k")
	require.NoError(t, holder.Unlock(t.Context()))
	next := s.Client(t).Get(t.Context(), "k").Val()
	lock := <-got
	require.NotNil(t, lock)
	require.Equal(t, lock.Token(), next)
	require.NoError(t, lock.Unlock(t.Context()))
}

// TestClaimIsExtendedOnce: the owner of a lock that was handed over extends its claim once, also if the lock ends before the
// TTL does.
func TestClaimIsExtendedOnce(t *testing.T) {
	t.Parallel()
	for name, opt := range map[string]redlatch.Option{
		"renewed": redlatch.WithTTL(20 * time.Second), "max hold": redlatch.WithMaxHold(5 * time.Second), "min hold": redlatch.WithMinHold(time.Millisecond),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onQueues(t, func(t *testing.T, newLocker newLockerFunc) {
				s := redistest.Start(t)
				var renewed heard
				holder := mustLock(t, newLocker(t, s.Client(t)), "k")
				got := waitInLine(t, newLocker(t, s.Client(t)), "k", opt, redlatch.WithHooks(redlatch.Hooks{Renewed: renewed.add}))
				require.NoError(t, holder.Unlock(t.Context()))
				lock := <-got
				require.NotNil(t, lock)
				outlast(t, 500*time.Millisecond)
				require.NoError(t, lock.Err())
				require.LessOrEqual(t, len(renewed.all()), 1)
				if left := time.Until(lock.Until()); len(renewed.all()) == 1 {
					require.Greater(t, left, 3*time.Second)
				}
				require.NoError(t, lock.Unlock(t.Context()))
			})
		})
	}
}
