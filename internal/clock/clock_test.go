package clock

import (
	"math"
	"testing"
	"testing/quick"
	"time"

	"github.com/stretchr/testify/require"
)

// TestHandedLeaseNeverBeginsAfterRedisGranted holds the start formula to its promise: whatever the
// offset between the clocks, their drift, how long the news took and how far Redis's clock was set
// back meanwhile, a lease that was handed over is not trusted for longer than Redis keeps the key.
// Where that clock was set forward, the error is the delay of the news, since no lease begins
// after it arrived.
func TestHandedLeaseNeverBeginsAfterRedisGranted(t *testing.T) {
	const factor = 0.01
	scale := func(n uint32, most time.Duration) time.Duration {
		return time.Duration(float64(most) * float64(n) / math.MaxUint32)
	}
	base := Now()
	here := func(d time.Duration) Instant {
		return Instant{Mono: base.Mono.Add(d), Wall: base.Wall + d}
	}
	property := func(asked, told, granted, arrived, drift, offset, stepped uint32) bool {
		// In true time, in order: the question leaves, Redis is asked, grants, the news arrives.
		t0 := scale(asked, time.Second)
		s0 := t0 + scale(told, time.Second)
		s1 := s0 + scale(granted, 20*time.Second)
		end := s1 + scale(arrived, 5*time.Second)
		rate := 1 + factor*(2*float64(drift)/math.MaxUint32-1)*0.99 // of Redis's clock
		there := func(d time.Duration) time.Duration {
			return scale(offset, 1000*time.Hour) + time.Duration(float64(d)*rate)
		}
		at := there(s1)
		back := scale(stepped, time.Hour)
		for _, at := range []time.Duration{at, at - min(back, at-1)} { // also with a clock set back
			start := HandedAt(here(end), here(t0), there(s0), at, factor)
			if start.Mono.Sub(base.Mono) > s1+time.Microsecond || start.Mono.Sub(base.Mono) > end {
				return false
			}
		}
		unasked := HandedAt(here(end), here(t0), 0, at, factor)
		return unasked.Mono.Sub(base.Mono) <= s1
	}
	require.NoError(t, quick.Check(property, &quick.Config{MaxCount: 200_000}))
}

// TestHandedLeaseKeepsMostOfItsTTL: the formula must not be so careful that nothing is left. A
// second after the last look, on clocks of one rate, it takes no more than the two trips and the
// drift of that second.
func TestHandedLeaseKeepsMostOfItsTTL(t *testing.T) {
	base := Now()
	arrived := Instant{Mono: base.Mono.Add(1002 * time.Millisecond), Wall: base.Wall + 1002*time.Millisecond}
	start := HandedAt(arrived, base, time.Hour, time.Hour+time.Second, 0.01)
	require.Equal(t, 12*time.Millisecond, arrived.Since(start))
}

// TestSleptOverItsTurn: the wall clock alone ran on while the machine slept.
func TestSleptOverItsTurn(t *testing.T) {
	base := Now()
	arrived := Instant{Mono: base.Mono.Add(time.Millisecond), Wall: base.Wall + time.Minute}
	start := HandedAt(arrived, base, time.Hour, time.Hour+500*time.Microsecond, 0.01)
	require.Greater(t, arrived.Since(start), 59*time.Second)
}
