package redlatch

import (
	"context"
	"errors"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// scripted is a strategy that a test plays. What it leaves out succeeds.
type scripted struct {
	onAcquire                      func(ctx context.Context, c *claim) (grant, error)
	onExtend, onRelease            func(ctx context.Context, c *claim) error
	acquires, extensions, releases atomic.Int64
	holder                         string // what inspect says; empty: whoever asks
}

func (s *scripted) name() string { return "scripted" }

func (s *scripted) check(*config) error { return nil }

func (s *scripted) checkKey(string, *config) error { return nil }

func (s *scripted) acquire(ctx context.Context, c *claim) (grant, error) {
	s.acquires.Add(1)
	if s.onAcquire != nil {
		return s.onAcquire(ctx, c)
	}
	return grant{fence: 1}, nil
}

func (s *scripted) extend(ctx context.Context, c *claim) error {
	s.extensions.Add(1)
	if s.onExtend != nil {
		return s.onExtend(ctx, c)
	}
	return nil
}

func (s *scripted) release(ctx context.Context, c *claim) error {
	s.releases.Add(1)
	if s.onRelease != nil {
		return s.onRelease(ctx, c)
	}
	return nil
}

func (s *scripted) inspect(_ context.Context, c *claim) (Status, error) {
	if s.holder != "" {
		return Status{Held: true, Token: s.holder, Fence: 2}, nil
	}
	return Status{Held: true, Token: c.token, Fence: 1}, nil
}

func scriptedLocker(t *testing.T, s strategy, opts ...Option) *engine {
	t.Helper()
	l, err := newEngine(s, opts)
	require.NoError(t, err)
	return l.(*engine)
}

func granted(t *testing.T, l Locker, opts ...Option) *Lock {
	t.Helper()
	lock, err := l.TryLock(t.Context(), "k", opts...)
	require.NoError(t, err)
	return lock
}

// TestUntilIsCountedFromBeforeTheRequest is rule 2.
func TestUntilIsCountedFromBeforeTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		s := &scripted{
			onAcquire: func(context.Context, *claim) (grant, error) { time.Sleep(3 * time.Second); return grant{}, nil },
			onExtend:  func(context.Context, *claim) error { time.Sleep(time.Second); return nil },
		}
		lock := granted(t, scriptedLocker(t, s), WithTTL(10*time.Second), WithoutRenewal())
		require.Equal(t, begin.Add(10*time.Second-100*time.Millisecond-2*time.Millisecond), lock.Until())

		begin = time.Now()
		require.NoError(t, lock.Extend(t.Context(), 20*time.Second))
		require.Equal(t, begin.Add(20*time.Second-200*time.Millisecond-2*time.Millisecond), lock.Until())
		require.NoError(t, lock.Unlock(t.Context()))

		begin = time.Now()
		adopted, err := scriptedLocker(t, s).Adopt(t.Context(), "k", "token", WithTTL(10*time.Second), WithoutRenewal())
		require.NoError(t, err)
		require.Equal(t, begin.Add(10*time.Second-100*time.Millisecond-2*time.Millisecond), adopted.Until())
		require.NoError(t, adopted.Unlock(t.Context()))

		s.onAcquire = nil
		begin = time.Now()
		lock = granted(t, scriptedLocker(t, s), WithTTL(10*time.Second), WithDrift(0.5), WithoutRenewal())
		require.Equal(t, begin.Add(5*time.Second-2*time.Millisecond), lock.Until())
		require.NoError(t, lock.Unlock(t.Context()))
	})
}

// TestSlowGrantIsNoGrant is rule 2: what arrives when nothing is left is given back.
func TestSlowGrantIsNoGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{onAcquire: func(context.Context, *claim) (grant, error) {
			time.Sleep(time.Second)
			return grant{}, nil
		}}
		for _, ttl := range []time.Duration{time.Millisecond, time.Second} {
			_, err := scriptedLocker(t, s).TryLock(t.Context(), "k", WithTTL(ttl))
			require.ErrorIs(t, err, ErrLost)
			require.NotErrorIs(t, err, ErrNotAcquired)
		}
		require.Equal(t, int64(2), s.releases.Load())

		_, err := scriptedLocker(t, s).TryLock(t.Context(), "k", WithTTL(time.Second), WithToken("mine"))
		require.ErrorIs(t, err, ErrLost)
		require.Equal(t, int64(2), s.releases.Load(), "a chosen token is never undone")

		s.onExtend = func(context.Context, *claim) error { time.Sleep(time.Second); return nil }
		_, err = scriptedLocker(t, s).Adopt(t.Context(), "k", "token", WithTTL(time.Second))
		require.ErrorIs(t, err, ErrLost)
	})
}

// TestAdoptTakesNoOthersFence: the lock may end, and another be granted, before the fence is read.
func TestAdoptTakesNoOthersFence(t *testing.T) {
	_, err := scriptedLocker(t, &scripted{holder: "the next owner"}).Adopt(t.Context(), "k", "token")
	require.ErrorIs(t, err, ErrLost)
}

// TestUndoIsDetachedFromItsCtx is rule 8: clean-up goes on when ctx has ended.
func TestUndoIsDetachedFromItsCtx(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	undone := make(chan error, 1)
	s := &scripted{
		onAcquire: func(ctx context.Context, _ *claim) (grant, error) { cancel(); return grant{}, ctxError(ctx) },
		onRelease: func(ctx context.Context, _ *claim) error { undone <- ctx.Err(); return nil },
	}
	_, err := scriptedLocker(t, s).TryLock(ctx, "k")
	require.ErrorIs(t, err, context.Canceled)
	select {
	case err := <-undone:
		require.NoError(t, err)
	case <-time.After(5 * time.Second):
		require.Fail(t, "what it may have taken was not given back")
	}
}

// TestPollingRidesTroubleOut is rule 16, where nobody hands the lock on.
func TestPollingRidesTroubleOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := []error{ErrNotAcquired, errors.New("connection reset"), ErrNotAcquired, errors.New("no route"), nil}
		s := &scripted{onAcquire: func(context.Context, *claim) (grant, error) {
			err := answers[0]
			answers = answers[1:]
			return grant{}, err
		}}
		lock, err := scriptedLocker(t, s).Lock(t.Context(), "k")
		require.NoError(t, err)
		require.NoError(t, lock.Unlock(t.Context()))

		trouble := errors.New("no route")
		s.onAcquire = func(context.Context, *claim) (grant, error) {
			if s.acquires.Load() == 6 {
				return grant{}, ErrNotAcquired
			}
			return grant{}, trouble
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = scriptedLocker(t, s).Lock(ctx, "k")
		require.ErrorIs(t, err, ErrNotAcquired)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, trouble)

		again, cancelAgain := context.WithTimeout(t.Context(), time.Second)
		defer cancelAgain()
		_, err = scriptedLocker(t, s).Lock(again, "k")
		require.Same(t, trouble, errors.Unwrap(err), "at the first attempt it is returned")
	})
}

// TestMaxHoldIsExact: no extension passes it, be it by the rounding of a TTL.
func TestMaxHoldIsExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 1500*time.Millisecond + 300*time.Microsecond
		begin := time.Now()
		lock := granted(t, scriptedLocker(t, &scripted{}), WithMaxHold(most))
		require.NoError(t, lock.Extend(t.Context(), time.Hour))
		require.Equal(t, begin.Add(most), lock.Until())
		<-lock.Done()
		require.Equal(t, most, time.Since(begin))
		require.ErrorIs(t, lock.Err(), ErrMaxHold)
	})
}

// TestLateAnswerRevivesNothing is rule 10: the lease ended, by a clock that ran on, while an
// extension was under way, and the timer has not noticed yet.
func TestLateAnswerRevivesNothing(t *testing.T) {
	var asleep atomic.Int64
	s := &scripted{onExtend: func(context.Context, *claim) error {
		asleep.Store(int64(20 * time.Second))
		return nil
	}}
	l := scriptedLocker(t, s, WithTTL(10*time.Second), WithoutRenewal())
	l.now = func() instant {
		i := readClocks()
		i.wall = i.wall.Add(time.Duration(asleep.Load()))
		return i
	}
	lock := granted(t, l)
	require.ErrorIs(t, lock.Extend(t.Context(), time.Hour), ErrLost)
	require.ErrorIs(t, lock.Err(), ErrLost)
}

// TestEveryAttemptHasATokenOfItsOwn is rules 1 and 4: what an earlier attempt left is given back
// by its token at any time, and must not take the lock of a later attempt with it.
func TestEveryAttemptHasATokenOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := make(map[string]bool)
		s := &scripted{}
		s.onAcquire = func(_ context.Context, c *claim) (grant, error) {
			seen[c.token] = true
			if s.acquires.Load() < 5 {
				return grant{}, ErrNotAcquired
			}
			return grant{}, nil
		}
		lock, err := scriptedLocker(t, s).Lock(t.Context(), "k")
		require.NoError(t, err)
		require.Len(t, seen, 5)
		require.True(t, seen[lock.Token()])
		require.NoError(t, lock.Unlock(t.Context()))
	})
}

// TestHourOfRenewals holds a lock through an hour of renewals every TTL/3, as rule 12 wants it,
// and leaves nothing behind.
func TestHourOfRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, client := bubbleRedis(t)
		var renewals atomic.Int64
		l, err := NewSetNXPX(client, WithHooks(Hooks{Renewed: func(Event) { renewals.Add(1) }}))
		require.NoError(t, err)
		lock, err := l.Lock(t.Context(), "k")
		require.NoError(t, err)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.NoError(t, lock.Err())
		require.InDelta(t, 3600/(10.0/3), float64(renewals.Load()), 60)
		require.NoError(t, lock.Unlock(t.Context()))
		require.Equal(t, []string{"{k}:fence:k"}, m.Keys())
		time.Sleep(25 * time.Hour)
		require.Empty(t, m.Keys(), "the fence counter goes, too")
	})
}

// bubbleRedis returns a miniredis whose keys expire by the bubble's clock, and a client of it.
func bubbleRedis(t *testing.T) (*miniredis.Miniredis, *redis.Client) {
	t.Helper()
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	t.Cleanup(m.Close)
	client := redis.NewClient(&redis.Options{
		Addr:   "127.0.0.1:6379",
		Dialer: func(context.Context, string, string) (net.Conn, error) { return m.Dial() },
	})
	t.Cleanup(func() { _ = client.Close() })
	return m, client
}

// TestHourOfWaiting is rules 15, 17 and 18 in a bubble: a waiter waits for an hour without a limit of
// its own, is served the moment the holder lets go, and a crashed holder costs what is left of its
// TTL. Then the subscription is closed, and no goroutine is left to the bubble.
func TestHourOfWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := bubbleRedis(t)
		l, err := NewSetNXPX(client)
		require.NoError(t, err)
		holder := granted(t, l)
		got := make(chan *Lock, 1)
		wait := func() {
			lock, err := l.Lock(context.Background(), "k", WithoutRenewal())
			if err != nil {
				t.Error(err)
			}
			got <- lock
		}
		go wait()
		time.Sleep(time.Hour)
		require.Empty(t, got)
		released := time.Now()
		require.NoError(t, holder.Unlock(t.Context()))
		lock := <-got
		require.Less(t, time.Since(released), 2*time.Second)

		go wait() // and the lock is never unlocked
		next := <-got
		require.Less(t, time.Since(lock.Until()), 250*time.Millisecond)
		require.ErrorIs(t, lock.Err(), ErrLost)
		require.NoError(t, next.Unlock(t.Context()))
		time.Sleep(10 * time.Second)
	})
}

// TestRenewalComesBeforeTheEnd, also where the drift leaves less than a third of the TTL.
func TestRenewalComesBeforeTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, opts := range [][]Option{{WithDrift(0.7)}, {WithTTL(4 * time.Millisecond)}} {
			lock := granted(t, scriptedLocker(t, &scripted{}), opts...)
			time.Sleep(time.Minute)
			require.NoError(t, lock.Err())
			require.NoError(t, lock.Unlock(t.Context()))
		}
	})
}

// TestSuspendedMachineWakesUpKnowing is rule 10: either clock ends the lease, at the next look.
func TestSuspendedMachineWakesUpKnowing(t *testing.T) {
	for name, jump := range map[string]func(*instant, time.Duration){
		"the wall clock ran on":      func(i *instant, d time.Duration) { i.wall = i.wall.Add(d) },
		"the monotonic clock ran on": func(i *instant, d time.Duration) { i.mono = i.mono.Add(d) },
	} {
		t.Run(name, func(t *testing.T) {
			s := &scripted{}
			l := scriptedLocker(t, s, WithTTL(time.Minute))
			var asleep atomic.Int64
			l.now = func() instant {
				i := readClocks()
				jump(&i, time.Duration(asleep.Load()))
				return i
			}
			lost := 0
			lock := granted(t, l, WithHooks(Hooks{Lost: func(Event) { lost++ }}))
			ctx := lock.Context(t.Context())
			require.NoError(t, lock.Err())
			asleep.Store(int64(59 * time.Second))
			require.NoError(t, lock.Err())
			asleep.Store(int64(time.Minute))
			require.ErrorIs(t, lock.Err(), ErrLost)
			require.ErrorIs(t, context.Cause(ctx), ErrLost)
			<-lock.Done()
			asleep.Store(0)
			require.ErrorIs(t, lock.Err(), ErrLost, "an end is for good")
			require.ErrorIs(t, lock.Extend(t.Context(), time.Hour), ErrLost)
			require.ErrorIs(t, lock.Unlock(t.Context()), ErrLost)
			require.Equal(t, int64(1), s.releases.Load(), "a lost lock's Unlock still releases")
			require.Zero(t, s.extensions.Load())
			require.Equal(t, 1, lost)
		})
	}
}

// TestWallClockStepsBackHarmlessly is rule 10 again: the clock that is further on decides.
func TestWallClockStepsBackHarmlessly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := scriptedLocker(t, &scripted{}, WithTTL(time.Minute), WithoutRenewal())
		l.now = func() instant {
			i := readClocks()
			i.wall = i.wall.Add(-time.Hour)
			return i
		}
		begin := time.Now()
		lock := granted(t, l)
		<-lock.Done()
		require.Equal(t, validity(time.Minute, 0.01), time.Since(begin))
		require.ErrorIs(t, lock.Unlock(t.Context()), ErrLost)
	})
}

// TestLossNeedsNoAnswer is rule 9: the lease ends on time while a renewal hangs.
func TestLossNeedsNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		s := &scripted{onExtend: func(context.Context, *claim) error { <-hang; return nil }}
		begin := time.Now()
		lock := granted(t, scriptedLocker(t, s), WithTTL(10*time.Second))
		<-lock.Done()
		require.Equal(t, validity(10*time.Second, 0.01), time.Since(begin))
		require.ErrorIs(t, lock.Err(), ErrLost)
		require.Equal(t, int64(1), s.extensions.Load())

		close(hang) // the answer comes too late
		synctest.Wait()
		require.ErrorIs(t, lock.Err(), ErrLost)
		require.ErrorIs(t, lock.Unlock(t.Context()), ErrLost)
	})
}

// TestUnclearRenewalIsRetriedUntilTheEnd is rule 12.
func TestUnclearRenewalIsRetriedUntilTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failed atomic.Int64
		var mended atomic.Bool
		s := &scripted{onExtend: func(context.Context, *claim) error {
			if mended.Load() {
				return nil
			}
			return errors.New("connection reset")
		}}
		lock := granted(t, scriptedLocker(t, s), WithTTL(10*time.Second), WithHooks(Hooks{
			RenewFailed: func(Event) { failed.Add(1) },
		}))
		until := lock.Until()
		time.Sleep(9 * time.Second)
		require.NoError(t, lock.Err())
		require.Equal(t, until, lock.Until())
		require.Greater(t, failed.Load(), int64(5))
		require.Less(t, failed.Load(), int64(50), "it does not spin")
		mended.Store(true)
		time.Sleep(time.Hour)
		require.NoError(t, lock.Err())
		require.NoError(t, lock.Unlock(t.Context()))
	})
}

// TestDefiniteAnswerEndsTheLeaseAtOnce is rule 12.
func TestDefiniteAnswerEndsTheLeaseAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{onExtend: func(context.Context, *claim) error { return ErrLost }}
		begin := time.Now()
		lock := granted(t, scriptedLocker(t, s), WithTTL(10*time.Second))
		<-lock.Done()
		require.Less(t, time.Since(begin), 4*time.Second)
		require.ErrorIs(t, lock.Err(), ErrLost)
		require.ErrorIs(t, lock.Unlock(t.Context()), ErrLost)
	})
}

// TestUnlockWaitsForARenewalInFlight is rule 11: the release goes out at once, Unlock returns
// after both, and no renewal starts any more.
func TestUnlockWaitsForARenewalInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		landed := make(chan struct{})
		s := &scripted{onExtend: func(context.Context, *claim) error { <-landed; return nil }}
		lock := granted(t, scriptedLocker(t, s), WithTTL(10*time.Second))
		time.Sleep(4 * time.Second)
		require.Equal(t, int64(1), s.extensions.Load())
		done := make(chan error)
		go func() { done <- lock.Unlock(context.Background()) }()
		synctest.Wait()
		require.Equal(t, int64(1), s.releases.Load())
		require.ErrorIs(t, lock.Err(), ErrReleased)
		select {
		case err := <-done:
			require.Failf(t, "Unlock returned before the renewal", "with %v", err)
		default:
		}
		require.ErrorIs(t, lock.Extend(t.Context(), time.Hour), ErrReleased)
		close(landed)
		require.NoError(t, <-done)
		time.Sleep(time.Hour)
		require.Equal(t, int64(1), s.extensions.Load())
	})
}

// TestUnlockRacesRenewals is rule 11, 100,000 times: no renewal starts after Unlock began, and
// nothing is left running.
func TestUnlockRacesRenewals(t *testing.T) {
	before := runtime.NumGoroutine()
	var wg sync.WaitGroup
	var broken atomic.Int64
	for range 8 {
		wg.Go(func() {
			var unlocking atomic.Bool
			s := &scripted{onExtend: func(context.Context, *claim) error {
				if unlocking.Load() {
					runtime.Gosched() // in flight already: it may land after the release
				}
				return nil
			}}
			l := scriptedLocker(t, s)
			for range 12_500 {
				unlocking.Store(false)
				lock := granted(t, l)
				l := lock.lease
				l.mu.Lock()
				l.renewAt = 0
				l.mu.Unlock()
				var racing sync.WaitGroup
				racing.Go(l.tick)
				racing.Go(func() { _ = lock.Extend(context.Background(), time.Hour) })
				unlocking.Store(true)
				if err := lock.Unlock(context.Background()); err != nil {
					broken.Add(1)
				}
				started := s.extensions.Load()
				racing.Wait()
				if s.extensions.Load() != started || !errors.Is(lock.Err(), ErrReleased) {
					broken.Add(1)
				}
			}
			if s.releases.Load() != 12_500 {
				broken.Add(1)
			}
		})
	}
	wg.Wait()
	require.Zero(t, broken.Load())
	require.LessOrEqual(t, runtime.NumGoroutine(), before+1)
}

// TestContextEndsWithItsParentOrItsLock is rule 11.
func TestContextEndsWithItsParentOrItsLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lock := granted(t, scriptedLocker(t, &scripted{}))
		why := errors.New("shutdown")
		parent, stop := context.WithCancelCause(t.Context())
		ctx := lock.Context(parent)
		other := lock.Context(t.Context())
		stop(why)
		<-ctx.Done()
		require.Same(t, why, context.Cause(ctx))
		require.NoError(t, other.Err())
		require.NoError(t, lock.Err())
		synctest.Wait()
		require.Len(t, lock.lease.contexts, 1, "the ended one is forgotten")
		require.NoError(t, lock.Unlock(t.Context()))
		require.ErrorIs(t, context.Cause(other), ErrReleased)
	})
}

// TestUnlockIsDetachedFromItsCtx is rule 8.
func TestUnlockIsDetachedFromItsCtx(t *testing.T) {
	type tag struct{}
	s := &scripted{onRelease: func(ctx context.Context, _ *claim) error {
		if ctx.Value(tag{}) != "trace" {
			return errors.New("the values are gone")
		}
		return ctx.Err()
	}}
	lock := granted(t, scriptedLocker(t, s))
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), tag{}, "trace"))
	cancel()
	require.NoError(t, lock.Unlock(ctx))
}

// TestIdleLockCostsNoGoroutine is rule 14.
func TestIdleLockCostsNoGoroutine(t *testing.T) {
	l := scriptedLocker(t, &scripted{})
	before := runtime.NumGoroutine()
	var locks []*Lock
	for range 1000 {
		locks = append(locks, granted(t, l))
	}
	require.LessOrEqual(t, runtime.NumGoroutine(), before)
	for _, lock := range locks {
		require.NoError(t, lock.Unlock(t.Context()))
	}
}

// TestEachTransitionIsReportedOnce holds the hooks to their word.
func TestEachTransitionIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var heard []string
		note := func(what string) func(Event) {
			return func(e Event) {
				require.Equal(t, "scripted", e.Strategy)
				require.Equal(t, "k", e.Key)
				heard = append(heard, what)
			}
		}
		hooks := Hooks{
			Acquired: note("acquired"), Waiting: note("waiting"), Renewed: note("renewed"),
			RenewFailed: note("renew failed"), Lost: note("lost"), Released: note("released"),
		}
		refusals := 3
		s := &scripted{onAcquire: func(context.Context, *claim) (grant, error) {
			if refusals--; refusals >= 0 {
				return grant{}, ErrNotAcquired
			}
			return grant{}, nil
		}}
		l := scriptedLocker(t, s, WithHooks(JoinHooks(Hooks{}, hooks)))
		lock, err := l.Lock(t.Context(), "k")
		require.NoError(t, err)
		require.NoError(t, lock.Extend(t.Context(), time.Hour))
		require.NoError(t, lock.Unlock(t.Context()))
		require.Equal(t, []string{"waiting", "acquired", "renewed", "released"}, heard)

		heard = nil
		lock = granted(t, l, WithoutRenewal())
		<-lock.Done()
		synctest.Wait()
		require.ErrorIs(t, lock.Err(), ErrLost)
		require.ErrorIs(t, lock.Unlock(t.Context()), ErrLost)
		require.Equal(t, []string{"acquired", "lost"}, heard)

		heard = nil
		s.onRelease = func(context.Context, *claim) error { return ErrLost }
		require.ErrorIs(t, granted(t, l).Unlock(t.Context()), ErrLost)
		require.Equal(t, []string{"acquired", "lost"}, heard)
	})
}

// TestHooksMayUseTheLock: one that unlocks a lock that was just lost does not wait for itself.
func TestHooksMayUseTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handle := make(chan *Lock, 1)
		unlocked := make(chan error, 1)
		s := &scripted{onExtend: func(context.Context, *claim) error { return ErrLost }}
		handle <- granted(t, scriptedLocker(t, s), WithHooks(Hooks{
			Lost: func(Event) { unlocked <- (<-handle).Unlock(context.Background()) },
		}))
		require.ErrorIs(t, <-unlocked, ErrLost)
	})
}

// TestLocalWaitersTakeTurns is rule 18's other side: a process is one poller, and who gives up is
// forgotten.
func TestLocalWaitersTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{onAcquire: func(context.Context, *claim) (grant, error) { return grant{}, ErrNotAcquired }}
		l := scriptedLocker(t, s, WithBackoff(func(int) time.Duration { return time.Second }))
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second+500*time.Millisecond)
		defer cancel()
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				_, err := l.Lock(ctx, "k")
				require.ErrorIs(t, err, context.DeadlineExceeded)
			})
		}
		wg.Wait()
		require.Equal(t, int64(50+100), s.acquires.Load(), "a first look each, then one a second")
		require.Empty(t, l.turns.keys)
	})
}

// TestPauseEndsWithTheHoldersLease is rule 15: a crashed holder costs what is left of its TTL.
func TestPauseEndsWithTheHoldersLease(t *testing.T) {
	slow := &config{backoff: func(int) time.Duration { return time.Hour }}
	require.Equal(t, time.Hour, slow.pause(1, 0))
	require.Equal(t, 51*time.Millisecond, slow.pause(1, 50*time.Millisecond))
	hasty := &config{backoff: func(int) time.Duration { return -1 }}
	require.Equal(t, time.Millisecond, hasty.pause(1, 0))
	for attempt := 1; attempt < 100; attempt++ {
		d := (&config{}).pause(attempt, 0)
		require.GreaterOrEqual(t, d, shortestPause/2)
		require.Less(t, d, longestPause)
	}
}

// TestForgottenLockIsRenewedNoMore is rule 13, whatever the machine has to do.
func TestForgottenLockIsRenewedNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{}
		granted(t, scriptedLocker(t, s), WithTTL(10*time.Second))
		time.Sleep(4 * time.Second)
		require.Equal(t, int64(1), s.extensions.Load())
		runtime.GC()
		time.Sleep(time.Hour)
		require.Equal(t, int64(1), s.extensions.Load())
	})
}
