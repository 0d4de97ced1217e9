package redlatchgocron_test

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	redlatchgocron "github.com/redlatch/redlatch/gocron"
	"github.com/redlatch/redlatch/internal/testing/redistest"
	"github.com/redlatch/redlatch/redlatchtest"
)

func nothing() {}

// TestEachTickRunsOnce: three instances tick one after the other, and the job ends at once. With a
// min hold one of them runs each tick. Without it each of them does.
func TestEachTickRunsOnce(t *testing.T) {
	for _, c := range []struct {
		name    string
		minHold time.Duration
		runs    int
	}{
		{"with a min hold of half the interval", every / 2, 20},
		{"with the shortest", 2*splay + 5*time.Millisecond, 20},
		{"with the longest", every - 2*splay - 5*time.Millisecond, 20},
		{"without", 0, 60},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := redlatchtest.NewLocker(t)
				f := locked(t, l.Client(), c.minHold, nothing)
				time.Sleep(20 * every)
				f.stop(t)
				require.Len(t, f.take(), c.runs)
				skipped := f.refusals()
				require.Len(t, skipped, 60-c.runs)
				for _, err := range skipped {
					require.ErrorIs(t, err, redlatch.ErrNotAcquired)
				}
			})
		})
	}
}

// TestLongRunKeepsOthersOut: while a job runs for longer than its interval, no instance starts it
// again.
func TestLongRunKeepsOthersOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := redlatchtest.NewLocker(t)
		var lasts atomic.Int64
		lasts.Store(int64(2*every + every/2))
		f := locked(t, l.Client(), every/2, func() { time.Sleep(time.Duration(lasts.Load())) })
		time.Sleep(12 * every) // four runs, each followed by the next tick
		require.Len(t, f.take(), 4)
		lasts.Store(0)
		time.Sleep(2 * every)
		f.stop(t)
	})
}

// TestOutageSkipsRuns: nobody runs the job while Redis cannot be reached, and each tick runs again
// afterwards.
func TestOutageSkipsRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := redlatchtest.NewLocker(t)
		f := locked(t, l.Client(), every/2, nothing, redlatch.WithOpTimeout(50*time.Millisecond))
		time.Sleep(3 * every)
		require.Len(t, f.take(), 3)
		f.refusals()

		l.Disconnect()
		time.Sleep(3 * every)
		require.Empty(t, f.take())
		skipped := f.refusals()
		require.Len(t, skipped, 9)
		for _, err := range skipped {
			require.ErrorIs(t, err, redlatch.ErrUnavailable)
			require.NotErrorIs(t, err, redlatch.ErrNotAcquired)
		}

		l.Reconnect()
		time.Sleep(3 * every)
		f.stop(t)
		require.Len(t, f.take(), 3)
	})
}

// TestErrorOfAJobIsNotThatOfItsLock: the lock of a run is granted, and the job is refused another one.
// The run failed, and was not skipped.
func TestErrorOfAJobIsNotThatOfItsLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := redlatchtest.NewLocker(t)
		l.Hold("printer")
		failed := make(chan error, 1)
		f := locked(t, l.Client(), every/2, func() {
			err := redlatch.Do(t.Context(), l, "job", func(ctx context.Context, _ *redlatch.Lock) error {
				return redlatch.TryDo(ctx, l, "printer", func(context.Context, *redlatch.Lock) error { return nil })
			})
			select {
			case failed <- err:
			default:
			}
		})
		time.Sleep(every)
		f.stop(t)
		err := <-failed
		require.NotErrorIs(t, err, redlatch.ErrNotAcquired)
		require.ErrorAs(t, err, new(*redlatch.FuncError))
		for _, err := range f.refusals() {
			require.ErrorIs(t, err, redlatch.ErrNotAcquired)
			require.NotErrorAs(t, err, new(*redlatch.FuncError))
		}
	})
}

// TestNoMinHoldIsNoneOfTheLocker: with 0, a run ends its lock, also if the Locker has a min hold.
func TestNoMinHoldIsNoneOfTheLocker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locker, err := redlatchgocron.NewLocker(redlatchtest.NewLocker(t, redlatch.WithMinHold(time.Hour)), 0)
		require.NoError(t, err)
		for range 2 {
			run, err := locker.Lock(t.Context(), "report")
			require.NoError(t, err)
			require.NoError(t, run.Unlock(t.Context()))
		}
	})
}

// TestCrashedHolderCostsItsTTL: an instance that crashed during a run keeps the others out until
// its TTL has passed.
func TestCrashedHolderCostsItsTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := redlatchtest.NewLocker(t)
		f := locked(t, l.Client(), every/2, nothing)
		_, err := l.TryLock(t.Context(), "gocron:report", redlatch.WithTTL(5*every), redlatch.WithoutRenewal()) // never released
		require.NoError(t, err)
		time.Sleep(5 * every)
		require.Empty(t, f.take())
		time.Sleep(5 * every)
		f.stop(t)
		require.Len(t, f.take(), 5)
	})
}

// TestStolenLockIsLeftToItsThief: a run whose lock was taken away ends without touching the new
// owner's key, and Lost reports it. Nobody runs the job until the new owner is done.
func TestStolenLockIsLeftToItsThief(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := redlatchtest.NewLocker(t)
		lost := make(chan error, 1)
		f := locked(t, l.Client(), every/2, func() { time.Sleep(every / 2) },
			redlatch.WithHooks(redlatch.Hooks{Lost: func(_ context.Context, e redlatch.Event) { lost <- e.Err }}))
		time.Sleep(splay + every/4)
		l.Steal("gocron:report") // during the run
		time.Sleep(3 * every)
		require.Len(t, f.take(), 1)
		require.ErrorIs(t, <-lost, redlatch.ErrLost)
		status, err := l.Inspect(t.Context(), "gocron:report")
		require.NoError(t, err)
		require.Equal(t, "somebody else", status.Owner)

		l.Free("gocron:report")
		time.Sleep(2*every + every/2)
		f.stop(t)
		require.Len(t, f.take(), 2)
	})
}

// TestShutdownLeavesNoLock: a job that a shutdown ends releases its lock, although its ctx has
// ended.
func TestShutdownLeavesNoLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := redlatchtest.NewLocker(t)
		locker, err := redlatchgocron.NewLocker(l, 0)
		require.NoError(t, err)
		s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
		require.NoError(t, err)
		_, err = s.NewJob(gocron.DurationJob(every), gocron.NewTask(func(ctx context.Context) { <-ctx.Done() }), gocron.WithName("report"))
		require.NoError(t, err)
		s.Start()
		time.Sleep(every + every/2)
		status, err := l.Inspect(t.Context(), "gocron:report")
		require.NoError(t, err)
		require.True(t, status.Held)
		require.NoError(t, s.Shutdown())
		status, err = l.Inspect(t.Context(), "gocron:report")
		require.NoError(t, err)
		require.False(t, status.Held)
	})
}

// TestUnlockReportsALoss: gocron drops the error of Unlock, but other callers get it.
func TestUnlockReportsALoss(t *testing.T) {
	l := redlatchtest.NewLocker(t)
	locker, err := redlatchgocron.NewLocker(l, 0)
	require.NoError(t, err)
	lock, err := locker.Lock(t.Context(), "report")
	require.NoError(t, err)
	l.Steal("gocron:report")
	require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrLost)

	lock, err = locker.Lock(t.Context(), "report")
	require.ErrorIs(t, err, redlatch.ErrNotAcquired)
	require.True(t, lock == nil, "gocron unlocks what is not nil")
}

// has is what the error says if this process itself keeps the key of the job.
const has = `this process has already started a job named "report" (if these are two jobs, name each)`

// TestJobsOfOneFunctionAreTold: two jobs without names share a lock. They end at once, and only the
// min hold of the first refuses the second. Each skip says why.
func TestJobsOfOneFunctionAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := redlatchtest.NewLocker(t)
		locker, err := redlatchgocron.NewLocker(l, every/2)
		require.NoError(t, err)
		s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
		require.NoError(t, err)
		skipped := make(chan string, 40)
		for range 2 {
			_, err := s.NewJob(gocron.DurationJob(every), gocron.NewTask(nothing),
				gocron.WithEventListeners(gocron.AfterLockError(func(_ uuid.UUID, name string, err error) {
					skipped <- fmt.Sprintf("%s: %v", name, err)
				})))
			require.NoError(t, err)
		}
		s.Start()
		time.Sleep(20*every + every/2)
		require.NoError(t, s.Shutdown())
		require.Len(t, skipped, 20)
		for range 20 {
			require.Contains(t, <-skipped, "this process has already started a job named")
		}
	})
}

// TestOwnRunIsToldWhileItKeepsTheKey: until the run has ended and its min hold has passed. Then
// somebody else keeps others out.
func TestOwnRunIsToldWhileItKeepsTheKey(t *testing.T) {
	for _, minHold := range []time.Duration{0, every} {
		for _, lasts := range []time.Duration{every / 2, 2 * every} {
			t.Run(fmt.Sprintf("%v after %v", minHold, lasts), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l := redlatchtest.NewLocker(t)
					locker, err := redlatchgocron.NewLocker(l, minHold)
					require.NoError(t, err)
					other, err := redlatchgocron.NewLocker(l, minHold)
					require.NoError(t, err)
					refused := func(l gocron.Locker) string {
						_, err := l.Lock(t.Context(), "report")
						require.ErrorIs(t, err, redlatch.ErrNotAcquired)
						return err.Error()
					}
					start := time.Now()
					lock, err := locker.Lock(t.Context(), "report")
					require.NoError(t, err)
					require.Contains(t, refused(locker), has)
					require.NotContains(t, refused(other), has)
					time.Sleep(lasts - time.Since(start))
					require.Contains(t, refused(locker), has)
					require.NoError(t, lock.Unlock(t.Context()))
					if lasts < minHold {
						require.Contains(t, refused(locker), has)
						time.Sleep(minHold - lasts + splay)
					}
					lock, err = other.Lock(t.Context(), "report")
					require.NoError(t, err)
					require.NotContains(t, refused(locker), has)
					require.NoError(t, lock.Unlock(t.Context()))
				})
			})
		}
	}
}

// TestJobNameIsTheKey: it comes after "gocron:", and after a prefix that the caller chose.
func TestJobNameIsTheKey(t *testing.T) {
	l := redlatchtest.NewLocker(t)
	for key, opts := range map[string][]redlatch.Option{
		"gocron:report":      nil,
		"shop:gocron:report": {redlatch.WithKeyPrefix("shop:")},
	} {
		locker, err := redlatchgocron.NewLocker(l, time.Minute, opts...)
		require.NoError(t, err)
		begin := time.Now()
		lock, err := locker.Lock(t.Context(), "report")
		require.NoError(t, err)
		ttl, err := l.Client().PTTL(t.Context(), key).Result()
		require.NoError(t, err)
		require.LessOrEqual(t, ttl, time.Minute)
		require.GreaterOrEqual(t, ttl+time.Since(begin)+time.Millisecond, time.Minute)
		require.NoError(t, lock.Unlock(t.Context()))
	}
}

// TestInvalidInputSendsNothing: the error is ErrInvalid, and names the option and its value.
func TestInvalidInputSendsNothing(t *testing.T) {
	client := redis.NewClient(&redis.Options{Dialer: func(context.Context, string, string) (net.Conn, error) {
		t.Error("something was sent")
		return nil, net.ErrClosed
	}})
	t.Cleanup(func() { _ = client.Close() })
	l, err := redlatch.NewSetNXPX(client)
	require.NoError(t, err)
	legacy, err := redlatch.NewLegacySetNX(client)
	require.NoError(t, err)

	for _, c := range []struct {
		l       redlatch.Locker
		minHold time.Duration
		opts    []redlatch.Option
		says    string
	}{
		{nil, time.Second, nil, "the Locker is nil"},
		{l, -time.Second, nil, "WithMinHold(-1s)"},
		{l, time.Second, []redlatch.Option{redlatch.WithTTL(1)}, "WithTTL(1ns)"},
		{l, time.Second, []redlatch.Option{redlatch.WithMaxHold(time.Millisecond)}, "WithMinHold(1s)"},
		{l, time.Second, []redlatch.Option{redlatch.WithoutRenewal(), nil}, "option 1 is nil"},
		{legacy, time.Second, nil, "WithMinHold(1s)"},
	} {
		_, err := redlatchgocron.NewLocker(c.l, c.minHold, c.opts...)
		require.ErrorIs(t, err, redlatch.ErrInvalid)
		require.ErrorContains(t, err, "redlatchgocron: new locker: redlatch: invalid argument: "+c.says)
	}
	_, err = redlatchgocron.NewLocker(legacy, 0)
	require.NoError(t, err)

	for _, c := range []struct {
		l    redlatch.Locker
		key  string
		opts []redlatch.Option
		says string
	}{
		{nil, "leader", nil, "the Locker is nil"},
		{l, "", nil, "key is empty"},
		{l, "leader", []redlatch.Option{redlatch.WithTTL(1)}, "WithTTL(1ns)"},
		{l, "leader", []redlatch.Option{redlatch.WithoutRenewal(), nil}, "option 1 is nil"},
	} {
		_, err := redlatchgocron.NewElector(c.l, c.key, c.opts...)
		require.ErrorIs(t, err, redlatch.ErrInvalid)
		require.ErrorContains(t, err, "redlatchgocron: new elector: redlatch: invalid argument: "+c.says)
	}
}

// attempts sends the error of each Lock of a gocron.Locker to made.
type attempts struct {
	gocron.Locker
	made chan<- error
}

func (a attempts) Lock(ctx context.Context, name string) (gocron.Lock, error) {
	lock, err := a.Locker.Lock(ctx, name)
	a.made <- err
	return lock, err
}

// TestEachTickRunsOnceOnRedis: on a real Redis, one of three instances runs each tick. The test
// ticks in place of the schedulers, since a scheduler whose clock is moved can run a tick twice. It
// ends each min hold, so that no instance is ever too late.
func TestEachTickRunsOnceOnRedis(t *testing.T) {
	client := redistest.Start(t).Client(t)
	made := make(chan error)
	ran := make(chan struct{}, 100)
	var f fleet
	for range 3 {
		l, err := redlatch.NewSetNXPX(client)
		require.NoError(t, err)
		locker, err := redlatchgocron.NewLocker(l, time.Hour)
		require.NoError(t, err)
		f.start(t, time.Now().Add(time.Hour), func() { ran <- struct{}{} }, gocron.WithDistributedLocker(attempts{locker, made}))
	}
	for range 20 {
		for _, s := range f.schedulers {
			require.NoError(t, s.Jobs()[0].RunNow())
		}
		granted := 0
		for range 3 {
			if err := <-made; err == nil {
				granted++
			} else {
				require.ErrorIs(t, err, redlatch.ErrNotAcquired)
			}
		}
		require.Equal(t, 1, granted)
		<-ran
		ttl, err := client.PTTL(t.Context(), "gocron:report").Result()
		require.NoError(t, err)
		require.Greater(t, ttl, 59*time.Minute)
		require.NoError(t, client.Del(t.Context(), "gocron:report").Err()) // as if the hour had passed
	}
	f.stop(t)
	require.Empty(t, ran)
}

// none is a fake that grants nothing, without an error.
type none struct{ redlatch.Locker }

func (none) TryLock(context.Context, string, ...redlatch.Option) (*redlatch.Lock, error) {
	return nil, nil
}

// TestNilLockOfAFakeIsRefused: gocron would panic with it.
func TestNilLockOfAFakeIsRefused(t *testing.T) {
	l, err := redlatchgocron.NewLocker(none{redlatchtest.NewLocker(t)}, 0)
	require.NoError(t, err)
	_, err = l.Lock(t.Context(), "job")
	require.ErrorIs(t, err, redlatch.ErrInvalid)
}

// TestLockerPrintsAsTheOneInIt: fmt would look into what changes.
func TestLockerPrintsAsTheOneInIt(t *testing.T) {
	locker, err := redlatchgocron.NewLocker(redlatchtest.NewLocker(t), 0)
	require.NoError(t, err)
	require.Equal(t, "setnxpx", fmt.Sprintf("%v", locker))
	require.Equal(t, `"setnxpx"`, fmt.Sprintf("%q", locker))
}
