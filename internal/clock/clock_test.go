package clock

import (
	"math"
	"testing"
	"testing/synctest"
	"time"
)

// TestValidity: until = start + TTL − drift − grace, drift = TTL / 100 + 2 ms. TTLFor is the
// inverse, rounded up to whole milliseconds.
func TestValidity(t *testing.T) {
	same := func(want, got time.Duration) {
		t.Helper()
		if got != want {
			t.Errorf("%v, not %v", got, want)
		}
	}
	for _, c := range []struct {
		ttl, grace, validity time.Duration
	}{
		{10 * time.Second, 0, 9898 * time.Millisecond},
		{10 * time.Second, 3 * time.Second, 6898 * time.Millisecond},
		{3 * time.Millisecond, 0, 970 * time.Microsecond},
		{time.Millisecond, 0, -1010 * time.Microsecond},
		{time.Second, time.Second, -12 * time.Millisecond},
	} {
		same(c.validity, Validity(c.ttl, c.grace))
		same(c.ttl, TTLFor(c.validity, c.grace))
	}
	same(4*time.Millisecond, TTLFor(971*time.Microsecond, 0))
	same(Longest, TTLFor(math.MaxInt64, 0))
	same(Longest, TTLFor(math.MaxInt64, math.MaxInt64)) // more than an int64 has room for
	for n := range 100_000 {
		d := time.Duration(n) * 7919 * time.Nanosecond
		ttl := TTLFor(d, 3*time.Second)
		if Validity(ttl, 3*time.Second) < d || Validity(ttl-time.Millisecond, 3*time.Second) >= d {
			t.Fatal(d, ttl)
		}
	}
	same(Longest, Milliseconds(math.MaxInt64))
	same(7*time.Millisecond, Milliseconds(7))
}

// TestSince: a time is over when the clock that is further on says so. What must last counts on the
// one that advanced less.
func TestSince(t *testing.T) {
	start := Now()
	if wall := time.Duration(time.Now().UnixNano()) - start.Wall; wall.Abs() > time.Minute {
		t.Error(wall)
	}
	at := func(mono, wall time.Duration) Instant { return Instant{start.Mono.Add(mono), start.Wall + wall} }
	for _, c := range []struct{ mono, wall, since, least time.Duration }{
		{time.Second, time.Second, time.Second, time.Second},
		{time.Second, time.Hour, time.Hour, time.Second}, // the machine slept
		{time.Second, -time.Hour, time.Second, 0},        // the wall clock was set back
		{time.Hour, time.Second, time.Hour, time.Second},
	} {
		now := at(c.mono, c.wall)
		if since, least := now.Since(start), now.AtLeast(start); since != c.since || least != c.least {
			t.Errorf("%+v: %v and %v", c, since, least)
		}
	}
}

// TestTimeIsThatOfBothClocks: an instant of this process is the same for others, each time, and for a
// context, also in a bubble.
func TestTimeIsThatOfBothClocks(t *testing.T) {
	check := func(t *testing.T) {
		for _, d := range []time.Duration{0, time.Hour, -time.Hour} {
			now := time.Now()
			m := MonoOf(now.Add(d))
			if off := m.Time().Sub(now.Add(d)); off.Abs() > time.Millisecond {
				t.Error(off)
			}
			if off := m.Time().Round(0).Sub(now.Add(d).Round(0)); off.Abs() > time.Second {
				t.Error(off)
			}
			if off := m.Deadline().Sub(now.Add(d)); off.Abs() > time.Millisecond {
				t.Error(off)
			}
			again := m.Time()
			if m.Before(m) || !m.Before(m+1) || (m + 1).Before(m) {
				t.Error("Before")
			}
			if m.Time() != again || m <= 0 || m.Add(d).Sub(m) != d {
				t.Error(m)
			}
		}
	}
	check(t)
	synctest.Test(t, check)
	if m := MonoOf(time.Now().Add(math.MaxInt64)); m <= MonoNow() {
		t.Error(m, "an end in centuries has passed")
	}
}
