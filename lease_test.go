package redlatch

import (
	"context"
	"errors"
	"fmt"
	"math"
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

	"github.com/redlatch/redlatch/internal/clock"
	core "github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/redistest"
)

// scripted is a strategy whose operations call the functions of a test. An operation without a function succeeds.
type scripted struct {
	onAcquire                      func(ctx context.Context, c *leaseParams) (acquireReply, error)
	onExtend                       func(ctx context.Context, p *leaseParams) error
	onRelease                      func(ctx context.Context, p *releaseParams) error
	acquires, extensions, releases atomic.Int64
	passes, keeps                  bool // see habits
}

func (s *scripted) name() string { return "scripted" }

func (s *scripted) clients() []redis.UniversalClient { return nil }

func (s *scripted) habits() habits {
	return habits{freshTokens: true, passes: s.passes, keeps: s.keeps}
}

func (s *scripted) check(*config) error { return nil }

func (s *scripted) place(prefix, key string) (place, error) { return place{key: prefix + key}, nil }

func (s *scripted) acquire(ctx context.Context, p *leaseParams, done func(acquireReply, error)) {
	s.acquires.Add(1)
	go func() {
		got, err := acquireReply{fence: 1}, error(nil)
		if s.onAcquire != nil {
			got, err = s.onAcquire(ctx, p)
		}
		done(got, err)
	}()
}

func (s *scripted) extend(ctx context.Context, p *leaseParams, done func(struct{}, error)) {
	s.extensions.Add(1)
	go func() {
		var err error
		if s.onExtend != nil {
			err = s.onExtend(ctx, p)
		}
		done(struct{}{}, err)
	}()
}

func (s *scripted) adopt(ctx context.Context, p *leaseParams, done func(uint64, error)) {
	s.extend(ctx, &leaseParams{target: p.target, ttl: p.ttl}, func(_ struct{}, err error) { done(2, err) })
}

func (s *scripted) release(ctx context.Context, p *releaseParams, done func(releaseReply, error)) {
	s.releases.Add(1)
	go func() {
		var err error
		if s.onRelease != nil {
			err = s.onRelease(ctx, p)
		}
		done(releaseReply{}, err)
	}()
}

func (s *scripted) inspect(_ context.Context, p *target, done func(Status, error)) {
	done(Status{Held: true, Token: p.token}, nil)
}

func (s *scripted) trouble(_ string, _ *target, since time.Duration) error {
	return &node.NoReply{Within: since}
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

// TestSlowGrantIsNoGrant: if nothing is left of the lease when the reply arrives, the lock is released.
func TestSlowGrantIsNoGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{onAcquire: func(context.Context, *leaseParams) (acquireReply, error) {
			time.Sleep(time.Second)
			return acquireReply{}, nil
		}}
		for _, ttl := range []time.Duration{time.Millisecond, time.Second} {
			_, err := scriptedLocker(t, s).TryLock(t.Context(), "k", WithTTL(ttl))
			require.ErrorIs(t, err, ErrLost)
			require.NotErrorIs(t, err, ErrNotAcquired)
		}
		require.Equal(t, int64(2), s.releases.Load())

		s.onExtend = func(context.Context, *leaseParams) error { time.Sleep(time.Second); return nil }
		_, err := scriptedLocker(t, s).Adopt(t.Context(), "k", "token", WithTTL(time.Second))
		require.ErrorIs(t, err, ErrLost)
	})
}

// TestAdoptTakesItsFenceInOneStep: Adopt checks the token and gets a new fence in one operation. So it cannot return
// the fence of another owner who acquires the lock in between.
func TestAdoptTakesItsFenceInOneStep(t *testing.T) {
	s := &scripted{}
	lock, err := scriptedLocker(t, s).Adopt(t.Context(), "k", "token")
	require.NoError(t, err)
	require.Equal(t, uint64(2), lock.Fence())
	require.Equal(t, int64(1), s.extensions.Load())

	s.onExtend = func(context.Context, *leaseParams) error { return ErrLost }
	_, err = scriptedLocker(t, s).Adopt(t.Context(), "k", "token")
	require.ErrorIs(t, err, ErrLost)
	require.Zero(t, s.acquires.Load()+s.releases.Load())
}

// TestReleaseOutlivesItsCtx: an attempt took the lock, and its ctx ended before the reply came.
func TestReleaseOutlivesItsCtx(t *testing.T) {
	m := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: m.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	l, err := NewSetNXPX(client)
	require.NoError(t, err)
	require.NoError(t, granted(t, l).Unlock(t.Context()), "the scripts are loaded")
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan struct{})
	var scripts atomic.Int64
	client.AddHook(redistest.OnProcess(func(next redis.ProcessHook) redis.ProcessHook {
		return func(c context.Context, cmd redis.Cmder) error {
			first := scripts.Add(1) == 1
			err := next(c, cmd)
			if first {
				cancel()
				<-left
			}
			return err
		}
	}))
	_, err = l.TryLock(ctx, "k")
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, ErrNotAcquired)
	close(left)
	require.Eventually(t, func() bool { return !m.Exists("k") }, 10*time.Second, time.Millisecond)
}

// TestMaxHoldIsExact: no extension exceeds WithMaxHold, not even by rounding a TTL.
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

// TestLateAnswerRevivesNothing: the wall clock ends the lease while an extension is in flight, before the
// timer notices.
func TestLateAnswerRevivesNothing(t *testing.T) {
	var asleep atomic.Int64
	s := &scripted{onExtend: func(context.Context, *leaseParams) error {
		asleep.Store(int64(20 * time.Second))
		return nil
	}}
	l := scriptedLocker(t, s, WithTTL(10*time.Second), WithoutRenewal())
	l.now = func() clock.Instant {
		i := clock.Now()
		i.Wall += time.Duration(asleep.Load())
		return i
	}
	lock := granted(t, l)
	require.ErrorIs(t, lock.Extend(t.Context(), time.Hour), ErrLost)
	require.ErrorIs(t, lock.Err(), ErrLost)
}

// TestEveryAttemptHasATokenOfItsOwn: a clean-up may release the key of an earlier attempt at any
// time, by its token. It must not release the lock of a later attempt.
func TestEveryAttemptHasATokenOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := make(map[string]bool)
		s := &scripted{}
		s.onAcquire = func(_ context.Context, c *leaseParams) (acquireReply, error) {
			seen[c.token] = true
			if s.acquires.Load() < 5 {
				return acquireReply{}, ErrNotAcquired
			}
			return acquireReply{}, nil
		}
		lock, err := scriptedLocker(t, s).Lock(t.Context(), "k")
		require.NoError(t, err)
		require.Len(t, seen, 5)
		require.True(t, seen[lock.Token()])
		require.NoError(t, lock.Unlock(t.Context()))
	})
}

// TestLossNeedsNoAnswer: the lease ends on time while a renewal hangs.
func TestLossNeedsNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		s := &scripted{onExtend: func(context.Context, *leaseParams) error { <-hang; return nil }}
		begin := time.Now()
		lock := granted(t, scriptedLocker(t, s), WithTTL(10*time.Second))
		<-lock.Done()
		require.Equal(t, clock.Validity(10*time.Second, 0.01), time.Since(begin))
		require.ErrorIs(t, lock.Err(), ErrLost)
		require.Equal(t, int64(1), s.extensions.Load())

		close(hang) // the answer comes too late
		synctest.Wait()
		require.ErrorIs(t, lock.Err(), ErrLost)
		require.ErrorIs(t, lock.Unlock(t.Context()), ErrLost)
	})
}

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

func TestUnlockIsDetachedFromItsCtx(t *testing.T) {
	type tag struct{}
	s := &scripted{onRelease: func(ctx context.Context, _ *releaseParams) error {
		if ctx.Value(tag{}) != "trace" {
			return errors.New("the values are gone")
		}
		return nil
	}}
	lock := granted(t, scriptedLocker(t, s))
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), tag{}, "trace"))
	cancel()
	require.NoError(t, lock.Unlock(ctx))
}

func TestIdleLockCostsNoGoroutine(t *testing.T) {
	l := scriptedLocker(t, &scripted{})
	before := runtime.NumGoroutine()
	var locks []*Lock
	for range 1000 {
		locks = append(locks, granted(t, l))
	}
	require.Less(t, runtime.NumGoroutine(), before+100, "1,000 locks are held")
	for _, lock := range locks {
		require.NoError(t, lock.Unlock(t.Context()))
	}
}

// TestEachTransitionIsReportedOnce covers a lock that is released, one that expires and one that Unlock finds lost.
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
		s := &scripted{onAcquire: func(context.Context, *leaseParams) (acquireReply, error) {
			if refusals--; refusals >= 0 {
				return acquireReply{}, ErrNotAcquired
			}
			return acquireReply{}, nil
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
		s.onRelease = func(context.Context, *releaseParams) error { return ErrLost }
		require.ErrorIs(t, granted(t, l).Unlock(t.Context()), ErrLost)
		require.Equal(t, []string{"acquired", "lost"}, heard)
	})
}

// TestHooksMayUseTheLock: a Lost hook that calls Unlock does not wait for itself.
func TestHooksMayUseTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handle := make(chan *Lock, 1)
		unlocked := make(chan error, 1)
		s := &scripted{onExtend: func(context.Context, *leaseParams) error { return ErrLost }}
		handle <- granted(t, scriptedLocker(t, s), WithHooks(Hooks{
			Lost: func(Event) { unlocked <- (<-handle).Unlock(context.Background()) },
		}))
		require.ErrorIs(t, <-unlocked, ErrLost)
	})
}

// TestReleaseThatOutlastsTheLeaseIsNoLoss: fn returns while the lock is trusted, and the release reaches Redis
// only when the lease has ended. Do returns no error. If the lease lasts longer, the key was taken while fn ran.
func TestReleaseThatOutlastsTheLeaseIsNoLoss(t *testing.T) {
	for work, loss := range map[time.Duration]error{900 * time.Millisecond: nil, 100 * time.Millisecond: ErrLost} {
		synctest.Test(t, func(t *testing.T) {
			s := &scripted{onRelease: func(context.Context, *releaseParams) error {
				time.Sleep(200 * time.Millisecond)
				return errNotOurs
			}}
			err := Do(t.Context(), scriptedLocker(t, s), "k", func(context.Context, *Lock) error {
				time.Sleep(work)
				return nil
			}, WithTTL(time.Second), WithoutRenewal())
			require.ErrorIs(t, err, loss)
		})
	}
}

// TestOnlyAHeldLockIsRestored: Extend and renewals restore the lock on nodes that lost it, for as long as the lease lasts
// or longer. A check and an extension that comes too late do not.
func TestOnlyAHeldLockIsRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var last atomic.Pointer[leaseParams]
		sent := last.Load
		s := &scripted{
			onAcquire: func(context.Context, *leaseParams) (acquireReply, error) {
				return acquireReply{fence: 7, recheckAfter: time.Second}, nil
			},
			onExtend: func(_ context.Context, p *leaseParams) error { last.Store(p); return nil },
		}
		restores := func() time.Duration {
			require.Equal(t, uint64(7), sent().fence)
			return time.Duration(sent().restoreMS) * time.Millisecond
		}
		lock := granted(t, scriptedLocker(t, s), WithTTL(30*time.Second))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, time.Millisecond, sent().ttl, "a check")
		require.Zero(t, restores())
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Equal(t, 30*time.Second, sent().ttl, "a renewal")
		require.Equal(t, 30*time.Second, restores())
		require.NoError(t, lock.Extend(t.Context(), time.Hour))
		require.Equal(t, time.Hour, restores())
		time.Sleep(time.Second)
		require.NoError(t, lock.Extend(t.Context(), time.Second))
		require.Equal(t, time.Second, sent().ttl)
		require.Equal(t, time.Hour-time.Second, restores().Round(500*time.Millisecond))

		require.NoError(t, lock.Unlock(t.Context()))
		lock.lease.running.Add(1)
		require.ErrorIs(t, lock.lease.extended(t.Context(), core.Call, time.Hour), ErrReleased)
		require.Zero(t, restores(), "the lock was unlocked when it was to be sent")
	})
}

func TestUntilIsCountedFromBeforeTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		s := &scripted{
			onAcquire: func(context.Context, *leaseParams) (acquireReply, error) {
				time.Sleep(3 * time.Second)
				return acquireReply{}, nil
			},
			onExtend: func(context.Context, *leaseParams) error { time.Sleep(time.Second); return nil },
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

// TestSuspendedMachineWakesUpKnowing: either clock ends the lease, at the next call of Err.
func TestSuspendedMachineWakesUpKnowing(t *testing.T) {
	for name, jump := range map[string]func(*clock.Instant, time.Duration){
		"the wall clock ran on":      func(i *clock.Instant, d time.Duration) { i.Wall += d },
		"the monotonic clock ran on": func(i *clock.Instant, d time.Duration) { i.Mono = i.Mono.Add(d) },
	} {
		t.Run(name, func(t *testing.T) {
			s := &scripted{}
			l := scriptedLocker(t, s, WithTTL(time.Minute))
			var asleep atomic.Int64
			l.now = func() clock.Instant {
				i := clock.Now()
				jump(&i, time.Duration(asleep.Load()))
				return i
			}
			lost := 0
			lock := granted(t, l, WithHooks(Hooks{Lost: func(Event) { lost++ }}))
			ctx := lock.Context(t.Context())
			require.NoError(t, lock.Err())
			asleep.Store(int64(50 * time.Second))
			require.Positive(t, lock.lease.core.Left(l.now()))
			require.NoError(t, lock.Err())
			asleep.Store(int64(time.Minute))
			require.Zero(t, lock.lease.core.Left(l.now()), "no time is left to restore the lock on a node")
			require.ErrorIs(t, lock.Err(), ErrLost)
			require.ErrorIs(t, context.Cause(ctx), ErrLost)
			<-lock.Done()
			asleep.Store(0)
			require.ErrorIs(t, lock.Err(), ErrLost, "the end is final")
			require.ErrorIs(t, lock.Extend(t.Context(), time.Hour), ErrLost)
			require.ErrorIs(t, lock.Unlock(t.Context()), ErrLost)
			require.Equal(t, int64(1), s.releases.Load(), "Unlock of a lost lock still sends its release")
			require.Zero(t, s.extensions.Load())
			require.Equal(t, 1, lost)
		})
	}
}

// TestWallClockStepsBackHarmlessly: the clock that is ahead decides.
func TestWallClockStepsBackHarmlessly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := scriptedLocker(t, &scripted{}, WithTTL(time.Minute), WithoutRenewal())
		l.now = func() clock.Instant {
			i := clock.Now()
			i.Wall -= time.Hour
			return i
		}
		begin := time.Now()
		lock := granted(t, l)
		<-lock.Done()
		require.Equal(t, clock.Validity(time.Minute, 0.01), time.Since(begin))
		require.ErrorIs(t, lock.Unlock(t.Context()), ErrLost)
	})
}

// TestLongestTimesStayTheLongest: a time that is too long for a Duration becomes clock.Longest. The sum of two such
// times is not negative either.
func TestLongestTimesStayTheLongest(t *testing.T) {
	require.Equal(t, clock.Longest, clock.Milliseconds(math.MaxInt64))
	require.Positive(t, clock.Longest+clock.Longest)
	for _, d := range []time.Duration{math.MaxInt64, math.MaxInt64 / 100 * 99, math.MaxInt64 / 2} {
		require.Equal(t, clock.Longest, clock.TTLFor(d, 0.01))
	}
	cfg, err := defaults().with([]Option{WithTTL(math.MaxInt64)})
	require.NoError(t, err)
	require.Equal(t, clock.Longest, cfg.ttl)
	cfg, err = cfg.with([]Option{WithOpTimeout(math.MaxInt64)})
	require.NoError(t, err)
	require.Equal(t, clock.Longest, cfg.timeout())
	g, ok := readRefusal([]any{int64(math.MaxInt64)})
	require.True(t, ok)
	require.Equal(t, clock.Longest, g.Left)

	synctest.Test(t, func(t *testing.T) {
		lock := granted(t, scriptedLocker(t, &scripted{}), WithDrift(0))
		time.Sleep(time.Second) // of the bubble's clock
		require.NoError(t, lock.Extend(t.Context(), math.MaxInt64))
		require.Greater(t, time.Until(lock.Until()), clock.Longest-time.Second)
		require.NoError(t, lock.Unlock(t.Context()))
	})
}

// TestMinHoldCountsOnTheSlowerClock: a clock that is set forward does not shorten the minimum hold, and its
// rest is rounded up to whole milliseconds.
func TestMinHoldCountsOnTheSlowerClock(t *testing.T) {
	for name, c := range map[string]struct{ mono, wall, want time.Duration }{
		"at once":                           {want: time.Second},
		"later":                             {mono: 300100 * time.Microsecond, wall: 300100 * time.Microsecond, want: 700 * time.Millisecond},
		"the wall clock was set forward":    {mono: 300 * time.Millisecond, wall: time.Hour, want: 700 * time.Millisecond},
		"the monotonic clock is ahead":      {mono: time.Hour, wall: 300 * time.Millisecond, want: 700 * time.Millisecond},
		"the wall clock was set back":       {mono: 300 * time.Millisecond, wall: -time.Hour, want: time.Second},
		"a rest of less than a millisecond": {mono: time.Second - 1, wall: time.Second - 1, want: time.Millisecond},
		"nothing is left":                   {mono: time.Second, wall: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			keep := time.Duration(-1)
			s := &scripted{onRelease: func(_ context.Context, p *releaseParams) error { keep = p.keep; return errNotOurs }}
			l := scriptedLocker(t, s, WithTTL(24*time.Hour), WithMinHold(time.Second))
			start := clock.Now()
			now := start
			l.now = func() clock.Instant { return now }
			lock := granted(t, l)
			now = clock.Instant{Mono: start.Mono.Add(c.mono), Wall: start.Wall + c.wall}
			require.ErrorIs(t, lock.Unlock(t.Context()), ErrLost)
			require.Equal(t, c.want, keep)
		})
	}
}

// TestHourOfRenewals holds a lock through an hour of renewals every TTL/3,
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
		require.Equal(t, []string{"redlatch:fence"}, m.Keys())
		time.Sleep(25 * time.Hour)
		require.Empty(t, m.Keys(), "the fence register expires, too")
	})
}

// bubbleRedis returns a miniredis whose keys expire by the bubble's clock, and a client of it.
func bubbleRedis(t *testing.T) (*miniredis.Miniredis, *redis.Client) {
	t.Helper()
	time.Sleep(time.Until(time.Date(2026, time.July, 1, 0, 0, 0, 0, time.UTC))) // a bubble begins in 2000, and ticks in 2026
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	t.Cleanup(m.Close)
	return m, bubbleClient(t, m)
}

// bubbleClients counts clients, so that each has an address of its own.
var bubbleClients atomic.Int64

// bubbleClient returns a client of m, as another process would have.
func bubbleClient(t *testing.T, m *miniredis.Miniredis) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{
		Addr:   fmt.Sprintf("127.0.0.1:%d", bubbleClients.Add(1)),
		Dialer: func(context.Context, string, string) (net.Conn, error) { return m.Dial() },
	})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// TestRenewalComesBeforeTheEnd: a lock is renewed before its lease ends, even if the drift leaves less than a third
// of the TTL or the TTL is only 4 ms.
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

// TestRenewalsGoOnWhileTheLeaseIsLong: a lock that lasts for longer than its TTL is renewed as often as any
// other. So a deleted key is noticed as soon. No renewal shortens the lease.
func TestRenewalsGoOnWhileTheLeaseIsLong(t *testing.T) {
	for name, opts := range map[string][]Option{
		"after Extend":                nil,
		"of WithMinHold":              {WithMinHold(time.Hour)},
		"after Extend to WithMaxHold": {WithMaxHold(time.Hour)},
		"after Extend, before a tick": {WithTTL(time.Minute)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, client := bubbleRedis(t)
				l, err := NewSetNXPX(client)
				require.NoError(t, err)
				lock := granted(t, l, opts...)
				ttl := lock.lease.r.cfg.ttl
				if ttl == 10*time.Second {
					time.Sleep(9 * time.Second)
				}
				if lock.lease.r.cfg.minHold == 0 {
					require.NoError(t, lock.Extend(t.Context(), 2*time.Hour))
				}
				until := lock.Until()
				time.Sleep(30 * time.Minute)
				require.Equal(t, until, lock.Until())
				require.WithinDuration(t, until, time.Now().Add(m.TTL("k")), 2*time.Minute)
				m.Del("k")
				deleted := time.Now()
				<-lock.Done()
				require.ErrorIs(t, lock.Err(), ErrLost)
				require.LessOrEqual(t, time.Since(deleted), ttl/3)
			})
		})
	}
}

func TestUnclearRenewalIsRetriedUntilTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failed atomic.Int64
		var fixed atomic.Bool
		s := &scripted{onExtend: func(context.Context, *leaseParams) error {
			if fixed.Load() {
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
		require.Less(t, failed.Load(), int64(50), "the renewal does not spin")
		fixed.Store(true)
		time.Sleep(time.Hour)
		require.NoError(t, lock.Err())
		require.NoError(t, lock.Unlock(t.Context()))
	})
}

func TestDefiniteAnswerEndsTheLeaseAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{onExtend: func(context.Context, *leaseParams) error { return ErrLost }}
		begin := time.Now()
		lock := granted(t, scriptedLocker(t, s), WithTTL(10*time.Second))
		<-lock.Done()
		require.Less(t, time.Since(begin), 4*time.Second)
		require.ErrorIs(t, lock.Err(), ErrLost)
		require.ErrorIs(t, lock.Unlock(t.Context()), ErrLost)
	})
}

// TestUnlockWaitsForARenewalInFlight: the release is sent at once. Unlock returns after
// the release and the renewal, and no other renewal starts.
func TestUnlockWaitsForARenewalInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answered := make(chan struct{})
		s := &scripted{onExtend: func(context.Context, *leaseParams) error { <-answered; return nil }}
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
		close(answered)
		require.NoError(t, <-done)
		time.Sleep(time.Hour)
		require.Equal(t, int64(1), s.extensions.Load())
	})
}

// TestUnlockRacesRenewals: 100,000 times: no renewal starts after Unlock has
// returned, and nothing is left running.
func TestUnlockRacesRenewals(t *testing.T) {
	before := runtime.NumGoroutine()
	var wg sync.WaitGroup
	var broken atomic.Int64
	for range 8 {
		wg.Go(func() {
			var unlocking atomic.Bool
			s := &scripted{onExtend: func(context.Context, *leaseParams) error {
				if unlocking.Load() {
					runtime.Gosched() // in flight already: it may run after the release
				}
				return nil
			}}
			l := scriptedLocker(t, s)
			var passed atomic.Int64
			l.now = func() clock.Instant {
				i := clock.Now()
				i.Wall += time.Duration(passed.Load())
				return i
			}
			for range 12_500 {
				unlocking.Store(false)
				lock := granted(t, l)
				passed.Add(int64(4 * time.Second))
				var racing sync.WaitGroup
				racing.Go(lock.lease.tick)
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
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+1 }, 20*time.Second, time.Millisecond)
}

// TestForgottenLockIsRenewedNoMore: In a bubble the load of the machine does not matter.
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

// TestFailingExtendsPutNoRenewalOff: calls of Extend that fail do not delay renewals.
func TestFailingExtendsPutNoRenewalOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{onExtend: func(_ context.Context, c *leaseParams) error {
			if c.ttl == time.Hour {
				time.Sleep(3 * time.Millisecond)
				return errors.New("no route")
			}
			return nil
		}}
		lock := granted(t, scriptedLocker(t, s, WithTTL(2*time.Second)))
		for range 2000 {
			require.ErrorContains(t, lock.Extend(t.Context(), time.Hour), "no route")
			require.Greater(t, time.Until(lock.Until()), time.Second)
		}
		require.NoError(t, lock.Unlock(t.Context()))
	})
}

// TestShortExtendsPutNoRenewalOff: an Extend that does not move the end does not move the next renewal either.
func TestShortExtendsPutNoRenewalOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lock := granted(t, scriptedLocker(t, &scripted{}, WithTTL(10*time.Second)))
		for range 60 {
			time.Sleep(time.Second) // in the time of the bubble
			require.NoError(t, lock.Extend(t.Context(), 2*time.Second))
			require.Greater(t, time.Until(lock.Until()), 6*time.Second)
		}
		require.NoError(t, lock.Unlock(t.Context()))
	})
}
