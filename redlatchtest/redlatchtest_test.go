package redlatchtest_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/redistest"
	"github.com/redlatch/redlatch/redlatchtest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// everywhere runs a test in a bubble and, beside others, outside of one.
func everywhere(t *testing.T, test func(t *testing.T)) {
	t.Parallel()
	t.Run("in a bubble", func(t *testing.T) { synctest.Test(t, test) })
	t.Run("outside", test)
}

// brief are the options for losses outside of a bubble: a short TTL, on a machine that may be busy.
var brief = []redlatch.Option{redlatch.WithTTL(6 * time.Second), redlatch.WithOpTimeout(2 * time.Second)}

// waiting starts to wait for key. It returns once there is a waiter, with a channel that gets the
// lock.
func waiting(t *testing.T, l *redlatchtest.Locker, key string) <-chan *redlatch.Lock {
	got := make(chan *redlatch.Lock, 1)
	go func() { // ends with the test
		lock, _ := l.Lock(t.Context(), key)
		got <- lock
	}()
	for range 3000 {
		if st, err := l.Inspect(t.Context(), key); err == nil && st.Waiters > 0 {
			return got
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatal("nobody waits")
	return nil
}

// await receives from a channel, with a deadline.
func await[T any](t *testing.T, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(time.Minute):
		t.Fatal("nothing came")
	}
	return v
}

// TestFencesCountTheTime: a fence is at least the time since 2026, in a bubble too.
func TestFencesCountTheTime(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		const tick, passes = 4 * time.Microsecond, 64
		fence := func(l *redlatchtest.Locker) time.Duration {
			lock, err := l.TryLock(t.Context(), "k")
			require.NoError(t, err)
			require.NoError(t, lock.Unlock(t.Context()))
			return time.Duration(lock.Fence()/passes) * tick
		}
		l := redlatchtest.NewLocker(t)
		begin := time.Now()
		first := fence(l)
		time.Sleep(200 * time.Millisecond)
		second := fence(l)
		require.GreaterOrEqual(t, second-first, 180*time.Millisecond) // a register lags by 10 ms at most
		require.LessOrEqual(t, second-first, time.Since(begin)+20*time.Millisecond)
	})
}

func TestHoldUntilFree(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		l := redlatchtest.NewLocker(t)
		l.Hold("k")
		_, err := l.TryLock(t.Context(), "k")
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		var held *redlatch.HeldError
		require.ErrorAs(t, err, &held)
		require.Equal(t, "somebody else", held.Owner)
		_, err = l.TryLock(t.Context(), "another")
		require.NoError(t, err)

		got := waiting(t, l, "k")
		l.Free("k")
		require.NoError(t, await(t, got).Unlock(t.Context()))
		l.Hold("k")
	})
}

// TestTheirLockIsRenewed: Hold lasts for longer than a TTL.
func TestTheirLockIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := redlatchtest.NewLocker(t)
		l.Hold("held")
		_, err := l.TryLock(t.Context(), "stolen", redlatch.WithoutRenewal())
		require.NoError(t, err)
		l.Steal("stolen")
		time.Sleep(10 * time.Minute)
		for _, key := range []string{"held", "stolen"} {
			st, err := l.Inspect(t.Context(), key)
			require.NoError(t, err)
			require.Equal(t, "somebody else", st.Owner)
			l.Free(key)
		}
	})
}

func TestSteal(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		l := redlatchtest.NewLocker(t, brief...)
		lock, err := l.Lock(t.Context(), "k")
		require.NoError(t, err)
		l.Steal("k")
		await(t, lock.Done())
		require.ErrorIs(t, lock.Err(), redlatch.ErrLost)
		require.ErrorContains(t, lock.Err(), "another owner has the key")
		require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrLost)
		_, err = l.TryLock(t.Context(), "k")
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)

		got := waiting(t, l, "k")
		l.Free("k")
		require.NoError(t, await(t, got).Unlock(t.Context()))
	})
}

func TestExpire(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		l := redlatchtest.NewLocker(t, brief...)
		lock, err := l.Lock(t.Context(), "mine")
		require.NoError(t, err)
		l.Expire("mine")
		next, err := l.TryLock(t.Context(), "mine")
		require.NoError(t, err)
		await(t, lock.Done())
		require.ErrorIs(t, lock.Err(), redlatch.ErrLost)
		require.NoError(t, next.Unlock(t.Context()))

		l.Hold("theirs")
		got := waiting(t, l, "theirs")
		l.Expire("theirs")
		require.NoError(t, await(t, got).Unlock(t.Context()))
		l.Hold("theirs")
	})
}

// signal says once that something has happened.
func signal(happened chan struct{}) {
	select {
	case happened <- struct{}{}:
	default:
	}
}

func TestOutage(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		l := redlatchtest.NewLocker(t, brief...)
		failed, renewed := make(chan struct{}, 1), make(chan struct{}, 1)
		kept, err := l.Lock(t.Context(), "kept", redlatch.WithHooks(redlatch.Hooks{
			RenewFailed: func(context.Context, redlatch.Event) { signal(failed) },
			Renewed:     func(context.Context, redlatch.Event) { signal(renewed) },
		}))
		require.NoError(t, err)
		l.Hold("theirs")
		got := waiting(t, l, "theirs")

		l.Disconnect()
		l.Disconnect()
		begin := time.Now()
		_, err = l.TryLock(t.Context(), "k")
		require.ErrorIs(t, err, redlatch.ErrUnavailable)
		require.NotErrorIs(t, err, redlatch.ErrNotAcquired)
		require.ErrorContains(t, err, "connection refused")
		require.GreaterOrEqual(t, time.Since(begin), 2*time.Second)
		_, err = l.Inspect(t.Context(), "k")
		require.ErrorIs(t, err, redlatch.ErrUnavailable)
		l.Hold("k") // somebody else is still connected
		l.Free("theirs")
		await(t, failed)
		select {
		case <-renewed: // before the outage
		default:
		}

		l.Reconnect()
		l.Reconnect()
		l.Free("k")
		lock, err := l.TryLock(t.Context(), "k")
		require.NoError(t, err, "the Locker works again at once")
		require.NoError(t, lock.Unlock(t.Context()))
		require.NoError(t, await(t, got).Unlock(t.Context()))
		await(t, renewed)
		require.NoError(t, kept.Unlock(t.Context()))
	})
}

// TestLockIsLostInAnOutage: a lock is lost in an outage that lasts for longer than its TTL, and
// others can acquire it.
func TestLockIsLostInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := redlatchtest.NewLocker(t)
		lock, err := l.Lock(t.Context(), "k")
		require.NoError(t, err)
		l.Disconnect()
		<-lock.Done()
		require.ErrorIs(t, lock.Err(), redlatch.ErrLost)
		time.Sleep(time.Second) // more than the drift
		l.Hold("k")
		l.Reconnect()
		require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrLost)
	})
}

// TestPrefixAndHooks: the methods use the prefix of the Locker, and its hooks do not report the
// locks of somebody else.
func TestPrefixAndHooks(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		var events atomic.Int32
		count := func(context.Context, redlatch.Event) { events.Add(1) }
		hooks := redlatch.WithHooks(redlatch.Hooks{Acquired: count, Released: count})
		l := redlatchtest.NewLocker(t, redlatch.WithKeyPrefix("shop:"), hooks)
		l.Hold("k")
		_, err := l.TryLock(t.Context(), "k")
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		require.EqualValues(t, 1, l.Client().Exists(t.Context(), "shop:k").Val())
		l.Expire("k")
		l.Hold("k")
		l.Free("k")
		require.Zero(t, events.Load())
		_, err = l.TryLock(t.Context(), "k")
		require.NoError(t, err)
		l.Steal("k")
		require.EqualValues(t, 1, events.Load())
	})
}

// TestClient: a Locker that the code makes itself is refused the keys of somebody else, and has the
// same outages.
func TestClient(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		l := redlatchtest.NewLocker(t)
		own, err := redlatch.NewSetNXPX(l.Client(), brief...)
		require.NoError(t, err)
		l.Hold("k")
		_, err = own.TryLock(t.Context(), "k")
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		l.Disconnect()
		_, err = own.TryLock(t.Context(), "k")
		require.ErrorIs(t, err, redlatch.ErrUnavailable)
	})
}

// A recorder is a testing.TB whose test must fail.
type recorder struct {
	testing.TB
	failure string
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.failure = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func TestMisuseFailsTheTest(t *testing.T) {
	type locker = redlatchtest.Locker
	mine := func(l *locker) {
		_, err := l.TryLock(context.Background(), "k", redlatch.WithOwner("me"))
		require.NoError(t, err)
	}
	for _, c := range []struct {
		failure string
		misuse  func(l *locker)
	}{
		{
			`Hold("k"): the key is held already: redlatch: try lock "k": held by "me"`,
			func(l *locker) { mine(l); l.Hold("k") },
		},
		{
			`Hold("k"): the key is held already: redlatch: try lock "k": held by "somebody else"`,
			func(l *locker) { l.Hold("k"); l.Hold("k") },
		},
		{
			`Hold(""): redlatch: try lock: invalid argument: key is empty`,
			func(l *locker) { l.Hold("") },
		},
		{
			`Free("k"): somebody else does not hold the key: call Hold or Steal before`,
			func(l *locker) { mine(l); l.Free("k") },
		},
		{
			`Free("k"): somebody else does not hold the key: call Hold or Steal before`,
			func(l *locker) { l.Hold("k"); l.Expire("k"); l.Free("k") },
		},
		{
			`Free("k"): redlatch: unlock "k": lock lost: the key is gone (expired, deleted or evicted), or another owner has it`,
			func(l *locker) { l.Hold("k"); l.Client().Del(context.Background(), "k"); l.Free("k") },
		},
		{
			`Steal("k"): nobody holds the key`,
			func(l *locker) { l.Steal("k") },
		},
		{
			`Steal("k"): somebody else holds the key already`,
			func(l *locker) { l.Hold("k"); l.Steal("k") },
		},
		{
			`Expire("k"): nobody holds the key`,
			func(l *locker) { l.Expire("k") },
		},
		{
			`Expire(""): redlatch: inspect: invalid argument: key is empty`,
			func(l *locker) { l.Expire("") },
		},
	} {
		require.Equal(t, c.failure, failure(t, c.misuse))
	}
	const invalid = "NewLocker: redlatch: new setnxpx: invalid argument: WithTTL(0s): below 3ms"
	require.Equal(t, invalid, failure(t, nil, redlatch.WithTTL(0)))
	require.Equal(t, "NewSemaphore: redlatch: new semaphore: invalid argument: limit 0: not from 1 to 2147483647",
		failureOf(t, func(tb testing.TB) { redlatchtest.NewSemaphore(tb, 0) }))
	require.Equal(t, "NewRedlock: redlatch: new redlock: invalid argument: 0 clients: not from 1 to 64",
		failureOf(t, func(tb testing.TB) { redlatchtest.NewRedlock(tb, 0) }))
	require.Equal(t, `Steal("k"): somebody else holds the key already`, failureOf(t, func(tb testing.TB) {
		l := redlatchtest.NewSemaphore(tb, 2)
		l.Hold("k")
		l.Hold("k")
		l.Steal("k")
	}))
	require.Equal(t, `Hold("k"): the key is held already: redlatch: try lock "k": held by "somebody else"`,
		failureOf(t, func(tb testing.TB) {
			l := redlatchtest.NewSemaphore(tb, 1)
			l.Hold("k")
			l.Hold("k")
		}))
	require.Equal(t, `Hold("k"): somebody else holds the key already`, failureOf(t, func(tb testing.TB) {
		read, _ := redlatchtest.NewReadWrite(tb)
		mine(read)
		read.Hold("k") // beside the reader of the code
		read.Hold("k")
	}))
}

// failure returns how misuse fails a test.
func failure(t *testing.T, misuse func(l *redlatchtest.Locker), opts ...redlatch.Option) string {
	return failureOf(t, func(tb testing.TB) { misuse(redlatchtest.NewLocker(tb, opts...)) })
}

func failureOf(t *testing.T, misuse func(tb testing.TB)) string {
	r := &recorder{TB: t}
	var wg sync.WaitGroup
	wg.Go(func() { misuse(r) })
	wg.Wait()
	return r.failure
}

// leaveEverythingOpen ends a test while locks are held, commands are in flight, and waiters wait.
func leaveEverythingOpen(t *testing.T) {
	l := redlatchtest.NewLocker(t, brief...)
	_, err := l.Lock(t.Context(), "mine")
	require.NoError(t, err)
	l.Hold("theirs")
	waiting(t, l, "theirs")
	l.Disconnect()
	time.Sleep(2100 * time.Millisecond) // a renewal is in flight
	go l.TryLock(t.Context(), "k")      //nolint:errcheck // it ends with the test
	go l.Inspect(t.Context(), "k")      //nolint:errcheck // likewise
	time.Sleep(time.Millisecond)
}

// TestOutageEndsWithTheTest: the end of the test ends the outage, so that no call retries for
// longer than the Locker is open.
func TestOutageEndsWithTheTest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := redlatchtest.NewLocker(t, redlatch.WithTTL(time.Hour), redlatch.WithOpTimeout(10*time.Minute))
		_, err := l.Lock(t.Context(), "k")
		require.NoError(t, err)
		l.Disconnect()
		time.Sleep(21 * time.Minute) // a renewal is in flight
	})
}

// TestNothingIsLeftRunning: no goroutine is left at the end of a bubble, which would panic, and
// none soon after the end of another test.
func TestNothingIsLeftRunning(t *testing.T) {
	t.Run("in a bubble", func(t *testing.T) { synctest.Test(t, leaveEverythingOpen) })
	t.Run("outside", leaveEverythingOpen)
	var left []string
	for range 600 {
		b := make([]byte, 1<<20)
		stacks := strings.Split(string(b[:runtime.Stack(b, true)]), "\n\n")
		left = slices.DeleteFunc(stacks[1:], func(stack string) bool { // the first is the test's own
			return strings.Contains(stack, "testing.(*T).Parallel(") || // a test that has not begun
				strings.Contains(stack, "testing.(*M).Run(") || // TestMain
				!strings.Contains(stack, "redlatch") && !strings.Contains(stack, "redis")
		})
		if len(left) == 0 {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatal(left)
}

// TestReadersAndWriters: the other owner of each side is one of that side.
func TestReadersAndWriters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read, write := redlatchtest.NewReadWrite(t, redlatch.WithKeyPrefix("app:"), redlatch.WithTTL(3*time.Second))
		read.Hold("k")
		lock, err := read.TryLock(t.Context(), "k")
		require.NoError(t, err)
		_, err = write.TryLock(t.Context(), "k")
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		require.NoError(t, lock.Unlock(t.Context()))
		got := make(chan *redlatch.Lock)
		go func() { // ends with the lock
			lock, err := write.Lock(t.Context(), "k")
			assert.NoError(t, err)
			got <- lock
		}()
		time.Sleep(time.Second)
		read.Free("k")
		lock = <-got
		write.Steal("k")
		<-lock.Done()
		require.ErrorIs(t, lock.Err(), redlatch.ErrLost)
		_, err = read.TryLock(t.Context(), "k")
		var held *redlatch.HeldError
		require.ErrorAs(t, err, &held)
		require.Equal(t, "somebody else", held.Owner)
		write.Free("k")
		for _, side := range []*redlatchtest.Locker{read, write} {
			lock, err = side.Lock(t.Context(), "k")
			require.NoError(t, err)
			read.Steal("k")
			<-lock.Done()
			require.ErrorIs(t, lock.Err(), redlatch.ErrLost)
			read.Free("k")
		}
		read.Disconnect()
		_, err = write.TryLock(t.Context(), "k")
		require.ErrorIs(t, err, redlatch.ErrUnavailable)
	})
}

// TestLockerPrintsAsTheOneInIt: fmt would look into what changes.
func TestLockerPrintsAsTheOneInIt(t *testing.T) {
	t.Parallel()
	l := redlatchtest.NewLocker(t)
	require.Equal(t, "setnxpx", fmt.Sprintf("%v", l))
	require.Equal(t, `"setnxpx"`, fmt.Sprintf("%q", l))
}
