package behavior_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
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

// TestCtxEndsACallInMidCommand: for a cancel and a deadline, with clients that ignore
// both: the call does not wait for the reply, and the late grant is released.
func TestCtxEndsACallInMidCommand(t *testing.T) {
	t.Parallel()
	direct, p, client := behindProxy(t)
	pipelined, err := client.AutoPipeline()
	require.NoError(t, err)
	t.Cleanup(func() { _ = pipelined.Close() })
	for name, c := range map[string]redis.UniversalClient{"client": client, "autopipeline": pipelined} {
		for _, how := range []string{"cancel", "deadline"} {
			t.Run(name+" "+how, func(t *testing.T) {
				l := newLocker(t, c, longTTL, redlatch.WithOpTimeout(30*time.Second))
				require.NoError(t, mustLock(t, l, "warm").Unlock(t.Context()))
				before := lastFence(t, direct)
				p.Delay(5 * time.Second)
				defer p.Heal()
				begin := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				want := context.DeadlineExceeded
				if how == "cancel" {
					ctx, cancel = context.WithCancel(t.Context())
					time.AfterFunc(time.Second, cancel)
					want = context.Canceled
				}
				defer cancel()
				_, err := l.Lock(ctx, "k")
				took := time.Since(begin)
				require.ErrorIs(t, err, want)
				require.ErrorIs(t, err, redlatch.ErrUnavailable)
				require.NotErrorIs(t, err, redlatch.ErrNotAcquired)
				require.Less(t, took, 4*time.Second)
				require.Greater(t, lastFence(t, direct), before, "the acquire was carried out")
				p.Heal()
				gone(t, direct, "k")
			})
		}
	}
}

// TestTroubleIsNoRefusal: if Redis answers the first attempt only with errors until ctx
// ends, Lock reports the error of Redis, and not ErrNotAcquired.
func TestTroubleIsNoRefusal(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(t *testing.T, l redlatch.Locker){
		"at first": func(*testing.T, redlatch.Locker) {},
		"after a wait": func(t *testing.T, l redlatch.Locker) { // the Locker has a subscription now
			holder := mustLock(t, l, "k")
			time.AfterFunc(100*time.Millisecond, func() { _ = holder.Unlock(context.Background()) })
			lock, err := l.Lock(t.Context(), "k")
			require.NoError(t, err)
			require.NoError(t, lock.Unlock(t.Context()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			client := redistest.Start(t).Client(t)
			l := newLocker(t, client)
			before(t, l)
			var left atomic.Int64
			left.Store(1 << 30)
			client.AddHook(redistest.OnProcess(refuser{&left}.ProcessHook))
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := l.Lock(ctx, "k")
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorContains(t, err, "LOADING")
			require.NotErrorIs(t, err, redlatch.ErrNotAcquired)
		})
	}
}

func TestUnlockIsBoundedBySilence(t *testing.T) {
	t.Parallel()
	_, p, client := behindProxy(t)
	lock := locktest.LockSoon(t, newLocker(t, client, redlatch.WithOpTimeout(500*time.Millisecond)), "k")
	p.Silence()
	begin := time.Now()
	err := lock.Unlock(t.Context())
	require.Less(t, time.Since(begin), 2*time.Second)
	var timeout net.Error
	require.ErrorContains(t, err, "no reply within 500ms")
	require.NotErrorIs(t, err, redlatch.ErrLost)
	require.ErrorAs(t, err, &timeout)
	require.True(t, timeout.Timeout())
	require.ErrorIs(t, lock.Err(), redlatch.ErrReleased)
}

// TestOutageIsNoCancellation: the error of an operation that times out does not match context.Canceled.
func TestOutageIsNoCancellation(t *testing.T) {
	t.Parallel()
	_, p, client := behindProxy(t)
	l := newLocker(t, client, redlatch.WithOpTimeout(300*time.Millisecond))
	lock := locktest.LockSoon(t, l, "k")
	p.Silence()
	_, locked := l.TryLock(t.Context(), "k")
	_, adopted := l.Adopt(t.Context(), "k", lock.Token())
	_, inspected := l.Inspect(t.Context(), "k")
	for _, err := range []error{locked, adopted, inspected, lock.Extend(t.Context(), time.Hour), lock.Unlock(t.Context())} {
		require.ErrorContains(t, err, "no reply within 300ms")
		require.NotErrorIs(t, err, context.Canceled)
	}
}

// TestHolderKnowsBeforeTheNextOwner: the holder knows of its loss before the next owner gets the key,
// whenever the network goes silent.
func TestHolderKnowsBeforeTheNextOwner(t *testing.T) {
	t.Parallel()
	const runs = 34 // for each of three moments
	for _, moment := range []time.Duration{0, 250 * time.Millisecond, 500 * time.Millisecond} {
		t.Run(moment.String(), func(t *testing.T) {
			t.Parallel()
			direct, p, client := behindProxy(t)
			holders := newLocker(t, client, redlatch.WithTTL(time.Second))
			others := newLocker(t, direct)
			var locks []*redlatch.Lock
			for i := range runs {
				locks = append(locks, mustLock(t, holders, fmt.Sprint("k", i)))
			}
			<-time.After(moment)
			p.Silence()
			var wg sync.WaitGroup
			var late atomic.Int64
			for _, lock := range locks {
				wg.Go(func() {
					next, err := others.Lock(t.Context(), lock.Key())
					select {
					case <-lock.Done():
					default:
						late.Add(1)
					}
					if err != nil || !errors.Is(lock.Err(), redlatch.ErrLost) || next.Err() != nil {
						late.Add(1)
					}
				})
			}
			wg.Wait()
			require.Zero(t, late.Load(), "two owners who both trusted their locks")
		})
	}
}

func TestCutConnectionsLoseNothing(t *testing.T) {
	t.Parallel()
	_, p, client := behindProxy(t)
	var renewed atomic.Int64
	l := newLocker(t, client, redlatch.WithTTL(6*time.Second), redlatch.WithHooks(redlatch.Hooks{
		Renewed: func(redlatch.Event) { renewed.Add(1) },
	}))
	lock := mustLock(t, l, "k")
	cut := time.NewTicker(300 * time.Millisecond)
	defer cut.Stop()
	for cuts := 0; cuts < 30 || renewed.Load() <= 3; cuts++ {
		<-cut.C
		p.Cut()
		require.NoError(t, lock.Err(), "after %d cuts and %d renewals", cuts, renewed.Load())
	}
	require.NoError(t, lock.Unlock(t.Context()))
}

// TestOutageIsRiddenOut: an unclear failure keeps the lease, and the renewal is retried.
func TestOutageIsRiddenOut(t *testing.T) {
	t.Parallel()
	_, p, client := behindProxy(t)
	failed := make(chan redlatch.Event, 1000)
	lock := locktest.LockSoon(t, newLocker(t, client, redlatch.WithOpTimeout(800*time.Millisecond)), "k", redlatch.WithTTL(8*time.Second), redlatch.WithHooks(redlatch.Hooks{
		RenewFailed: func(e redlatch.Event) { failed <- e },
	}))
	until := lock.Until()
	p.Silence()
	require.ErrorContains(t, (<-failed).Err, "no reply within 800ms")
	require.Equal(t, until, lock.Until())
	require.NoError(t, lock.Err())
	p.Heal()
	eventually(t, "renewed", func() bool { return lock.Until().After(until) })
	require.NoError(t, lock.Unlock(t.Context()))
}

// TestFlushedLockIsLost: a definite answer ends the lock within a renewal interval.
func TestFlushedLockIsLost(t *testing.T) {
	t.Parallel()
	direct, _, client := behindProxy(t)
	lock := mustLock(t, newLocker(t, client), "k", redlatch.WithTTL(3*time.Second))
	ctx := lock.Context(t.Context())
	require.NoError(t, direct.FlushAll(t.Context()).Err())
	select {
	case <-ctx.Done():
	case <-time.After(2 * time.Second):
		require.Fail(t, "the loss was not noticed")
	}
	require.ErrorIs(t, context.Cause(ctx), redlatch.ErrLost)
	runtime.KeepAlive(lock) // a garbage-collected lock is not renewed
}

func TestFirstAttemptReportsTroubleAndAWaitRidesItOut(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	l := newLocker(t, s.Client(t), redlatch.WithTTL(2*time.Second), patience)
	mustLock(t, newLocker(t, s.Client(t)), "k")
	waiting := make(chan redlatch.Event, 1)
	got := make(chan error, 1)
	go func() {
		lock, err := l.Lock(t.Context(), "k", redlatch.WithHooks(redlatch.Hooks{
			Waiting: func(e redlatch.Event) { waiting <- e },
		}))
		if err == nil {
			err = lock.Unlock(context.WithoutCancel(t.Context()))
		}
		got <- err
	}()
	select {
	case <-waiting:
	case err := <-got:
		require.Fail(t, "Lock does not wait", err)
	}
	s.Kill()

	dead := newLocker(t, s.Client(t), briefly)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	_, err := dead.Lock(ctx, "k")
	require.Error(t, err)
	require.NotErrorIs(t, err, redlatch.ErrNotAcquired)
	_, err = dead.TryLock(t.Context(), "k")
	require.Error(t, err)
	require.NotErrorIs(t, err, redlatch.ErrNotAcquired)

	s.Restart(t) // without its data, so that the key is free
	require.NoError(t, <-got)
}

// TestWaitReportsItsTrouble: if ctx ends a wait, the error also reports the last failure.
func TestWaitReportsItsTrouble(t *testing.T) {
	t.Parallel()
	direct, p, client := behindProxy(t)
	mustLock(t, newLocker(t, direct), "k")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	l := newLocker(t, client, briefly, redlatch.WithPollInterval(time.Millisecond, time.Millisecond), redlatch.WithHooks(redlatch.Hooks{
		Waiting: func(redlatch.Event) { p.Silence() },
		Trouble: func(e redlatch.Event) {
			if e.Attempts >= 3 {
				cancel()
			}
		},
	}))
	_, err := l.Lock(ctx, "k")
	require.ErrorIs(t, err, redlatch.ErrUnavailable)
	require.NotErrorIs(t, err, redlatch.ErrNotAcquired)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "no reply within 1s")
}

// giveUpAtRandom makes 300 Lock calls on k0 to k2, each with a random timeout below most. A call may
// fail only because its ctx has ended.
func giveUpAtRandom(t *testing.T, l redlatch.Locker, most time.Duration) {
	t.Helper()
	var wg sync.WaitGroup
	var failures atomic.Int64
	for range 20 {
		wg.Go(func() {
			for i := range 15 {
				ctx, cancel := context.WithTimeout(t.Context(), rand.N(most))
				lock, err := l.Lock(ctx, fmt.Sprint("k", i%3))
				if err == nil {
					err = lock.Unlock(ctx)
				} else if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
					err = nil
				}
				if err != nil {
					failures.Add(1)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	require.Zero(t, failures.Load())
}

// TestGivingUpLeavesNoGoroutineAndNoKey: 300 calls end at random moments over a slow
// network.
func TestGivingUpLeavesNoGoroutineAndNoKey(t *testing.T) {
	direct, p, client := behindProxy(t)
	l := newLocker(t, client, longTTL)
	require.NoError(t, mustLock(t, l, "warm").Unlock(t.Context()))
	before := runtime.NumGoroutine()
	p.DelayFunc(func() time.Duration { return rand.N(5 * time.Millisecond) })
	giveUpAtRandom(t, l, 12*time.Millisecond)
	p.Heal()
	for i := range 3 {
		gone(t, direct, fmt.Sprint("k", i))
	}
	require.NoError(t, client.Close())
	eventually(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before })
}
