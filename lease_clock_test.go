package redlatch

import (
	"context"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/clock"
)

// TestUntilIsCountedFromBeforeTheRequest is rule 2.
func TestUntilIsCountedFromBeforeTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		s := &scripted{
			onAcquire: func(context.Context, *acquireParams) (acquireReply, error) {
				time.Sleep(3 * time.Second)
				return acquireReply{}, nil
			},
			onExtend: func(context.Context, *extendParams) error { time.Sleep(time.Second); return nil },
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

// TestSuspendedMachineWakesUpKnowing is rule 10: either clock ends the lease, at the next call of Err.
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
			heals := func() (does bool) {
				lock.lease.whileHeld(func(time.Duration) { does = true })
				return does
			}
			require.True(t, heals())
			require.NoError(t, lock.Err())
			asleep.Store(int64(time.Minute))
			require.False(t, heals(), "no time is left to heal a node")
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

// TestWallClockStepsBackHarmlessly is rule 10 again: the clock that is ahead decides.
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

// TestMinHoldCountsOnTheSlowerClock is rule 37: a clock that is set forward does not shorten the minimum hold, and its
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
