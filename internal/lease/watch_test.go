package lease

import (
	"math"
	"testing"
	"testing/quick"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
)

// later returns the instant d after base, on both clocks.
func later(base clock.Instant, d time.Duration) clock.Instant {
	return clock.Instant{Mono: base.Mono.Add(d), Wall: base.Wall + d}
}

// TestHandedLeaseNeverBeginsAfterRedisGranted checks the formula of Started: a lease that was handed over is not trusted for
// longer than Redis keeps the key. That holds for any offset between the clocks, any drift and any delay of the message, even if
// the clock of Redis was set back in the meantime. If that clock was set forward, the error is at most the delay of the message,
// since no lease begins after the message has arrived.
func TestHandedLeaseNeverBeginsAfterRedisGranted(t *testing.T) {
	const factor = 0.01
	scale := func(n uint32, most time.Duration) time.Duration {
		return time.Duration(float64(most) * float64(n) / math.MaxUint32)
	}
	base := clock.Now()
	property := func(asked, told, granted, arrived, drift, offset, stepped uint32) bool {
		// In true time, in order: the question leaves, Redis is asked, Redis grants, the message arrives.
		t0 := scale(asked, time.Second)
		s0 := t0 + scale(told, time.Second)
		s1 := s0 + scale(granted, 20*time.Second)
		end := s1 + scale(arrived, 5*time.Second)
		rate := 1 + factor*(2*float64(drift)/math.MaxUint32-1)*0.99 // of Redis's clock
		there := func(d time.Duration) time.Duration {
			return scale(offset, 1000*time.Hour) + time.Duration(float64(d)*rate)
		}
		at := there(s1)
		w := Watch{later(base, t0), there(s0)}
		for _, at := range []time.Duration{at, at - min(scale(stepped, time.Hour), at-1)} { // also with a clock set back
			start := w.Started(at, later(base, end), factor).Mono.Sub(base.Mono)
			if start > s1+time.Microsecond || start > end {
				return false
			}
		}
		w.redis = 0
		return w.Started(at, later(base, end), factor).Mono.Sub(base.Mono) <= s1
	}
	if err := quick.Check(property, &quick.Config{MaxCount: 50_000}); err != nil {
		t.Error(err)
	}
}

// TestHandedLeaseKeepsMostOfItsTTL: a second after the last look, with clocks of the same rate, the formula costs no more than
// the two trips and the drift of that second. If only the wall clock moved on, since the machine slept, that time counts.
func TestHandedLeaseKeepsMostOfItsTTL(t *testing.T) {
	base := clock.Now()
	w := Watch{base, time.Hour}
	arrived := later(base, 1002*time.Millisecond)
	if age := arrived.Since(w.Started(time.Hour+time.Second, arrived, 0.01)); age != 12*time.Millisecond {
		t.Error(age)
	}
	arrived = clock.Instant{Mono: base.Mono.Add(time.Millisecond), Wall: base.Wall + time.Minute}
	if age := arrived.Since(w.Started(time.Hour+500*time.Microsecond, arrived, 0.01)); age <= 59*time.Second {
		t.Error(age)
	}
}

// TestHandedLeaseBeginsAtTheNewestQuestion: a handed lease is computed from the newest command that returned the time of
// Redis. Until one has, it begins at the newest command that may have queued the line.
func TestHandedLeaseBeginsAtTheNewestQuestion(t *testing.T) {
	base := clock.Now()
	at := func(seconds int) clock.Instant { return later(base, time.Duration(seconds)*time.Second) }
	var w Watch
	starts := func(want int, why string) {
		t.Helper()
		if got := w.Started(time.Hour+10*time.Second, at(10), 0); got != at(want) {
			t.Errorf("%s: it began %v after %d s", why, got.Since(at(want)), want)
		}
	}
	w.Sent(at(0))
	starts(0, "nothing is known")
	w.Sent(at(2))
	starts(2, "a newer command")
	w.Told(at(1), time.Hour+3*time.Second)
	starts(8, "one has returned the time")
	w.Sent(at(9))
	starts(8, "this one has returned nothing yet")
	w.Told(at(4), time.Hour+5*time.Second)
	starts(9, "a newer one has returned the time")
	w.Told(at(3), time.Hour+3*time.Second)
	starts(9, "a late reply to an older command")
}
