package lease

import (
	"math"
	"testing"
	"testing/quick"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
)

// TestHandedLeaseNeverBeginsAfterRedisGranted checks the formula of Started: a lease that was
// handed over is not trusted for longer than Redis keeps the key. That holds for any offset between
// the clocks, any drift and any delay of the message, even if the clock of Redis was set back in
// the meantime. If that clock was set forward, the error is at most the delay of the message, since
// no lease begins after the message has arrived.
func TestHandedLeaseNeverBeginsAfterRedisGranted(t *testing.T) {
	const factor = 0.01
	scale := func(n uint32, most time.Duration) time.Duration {
		return time.Duration(float64(most) * float64(n) / math.MaxUint32)
	}
	base := clock.Now()
	property := func(asked, told, granted, arrived, drift, offset, stepped uint32) bool {
		// In true time, in order: the question leaves, Redis is asked, Redis grants, the message
		// arrives.
		t0 := scale(asked, time.Second)
		s0 := t0 + scale(told, time.Second)
		s1 := s0 + scale(granted, 20*time.Second)
		end := s1 + scale(arrived, 5*time.Second)
		rate := 1 + factor*(2*float64(drift)/math.MaxUint32-1)*0.99 // of Redis's clock
		there := func(d time.Duration) clock.Redis {
			return clock.Redis(scale(offset, 1000*time.Hour) + time.Duration(float64(d)*rate))
		}
		at := there(s1)
		w := Watch{base.Add(t0), there(s0)}
		for _, at := range []clock.Redis{at, at - min(clock.Redis(scale(stepped, time.Hour)), at-1)} { // also with a clock set back
			start := w.Started(at, base.Add(end)).Mono.Sub(base.Mono)
			if start > s1+time.Microsecond || start > end {
				return false
			}
		}
		w.redis = 0
		return w.Started(at, base.Add(end)).Mono.Sub(base.Mono) <= s1
	}
	if err := quick.Check(property, &quick.Config{MaxCount: 50_000}); err != nil {
		t.Error(err)
	}
}

// redis returns an instant on the clock of Redis.
func redis(seconds int) clock.Redis {
	return clock.Redis(time.Hour + time.Duration(seconds)*time.Second)
}

// TestHandedLeaseKeepsMostOfItsTTL: a second after the last look, with clocks of the same rate, the
// formula costs no more than the two trips and the drift of that second. If only the wall clock
// moved on, since the machine slept, that time counts.
func TestHandedLeaseKeepsMostOfItsTTL(t *testing.T) {
	base := clock.Now()
	w := Watch{base, redis(0)}
	arrived := base.Add(1002 * time.Millisecond)
	if age := arrived.Since(w.Started(redis(1), arrived)); age != 12*time.Millisecond {
		t.Error(age)
	}
	arrived = clock.Instant{Mono: base.Mono.Add(time.Millisecond), Wall: base.Wall + time.Minute}
	if age := arrived.Since(w.Started(redis(0)+clock.Redis(500*time.Microsecond), arrived)); age <= 59*time.Second {
		t.Error(age)
	}
}

// TestHandedLeaseBeginsAtTheNewestQuestion: a handed lease is computed from the newest command that
// returned the time of Redis. Until one has, it begins at the newest command that may have queued
// the line.
func TestHandedLeaseBeginsAtTheNewestQuestion(t *testing.T) {
	base := clock.Now()
	at := func(seconds int) clock.Instant { return base.Add(time.Duration(seconds) * time.Second) }
	var w Watch
	starts := func(want time.Duration, why string) {
		t.Helper()
		if got := w.Started(redis(10), at(10)); got != base.Add(want) {
			t.Errorf("%s: it began %v after %v", why, got.Since(base.Add(want)), want)
		}
	}
	w.Sent(at(0))
	starts(0, "nothing is known")
	w.Sent(at(2))
	starts(2*time.Second, "a newer command")
	w.Told(at(1), redis(3))
	starts(7930*time.Millisecond, "one has returned the time")
	w.Sent(at(9))
	starts(7930*time.Millisecond, "this one has returned nothing yet")
	w.Told(at(4), redis(5))
	starts(8950*time.Millisecond, "a newer one has returned the time")
	w.Told(at(3), redis(3))
	starts(8950*time.Millisecond, "a late reply to an older command")
}
