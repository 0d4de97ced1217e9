package inbox

import (
	"math"
	"strings"
	"testing"
	"testing/quick"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/clock"
)

// TestHandoverIsReadStrictly: the parser accepts what announce.lua publishes, and nothing else.
func TestHandoverIsReadStrictly(t *testing.T) {
	g, ok := parseGrant("1700000000 999999 220000000123 23 2000 redlatch:1 a token the key")
	require.True(t, ok)
	require.Equal(t, Grant{Token: "a token", Tick: 220000000123, At: 1700000000*time.Second + 999999*time.Microsecond}, g)
	for _, good := range []string{
		"1 1 140737488355327 5 1 c xk", // the highest tick, 2^47 - 1
		"1 1 1 5 1 c x",                // the key is empty
		"1 1 1 6 1 -c xk", "8589934592 1 1 5 1 c xk",
	} {
		g, ok := parseGrant(good)
		require.True(t, ok, good)
		require.Equal(t, "x", g.Token, good)
	}
	for _, bad := range []string{
		"", "1 2 3 4", "1 1000000 1 5 1 c xk", "8589934593 1 1 5 1 c xk", "99999999999 1 1 5 1 c xk", "1 1 1 9 1 c xk", "1 1 -1 5 1 c xk",
		"1 1e3 1 5 1 c xk", "1 1 140737488355328 5 1 c xk", "1 1 9007199254740992 5 1 c xk", "1 1 1 -1 1 c xk", "1 1 1 3 1 c xk",
		"1 1 5 1 c xk", strings.Repeat("9", 400),
	} {
		_, ok := parseGrant(bad)
		require.False(t, ok, bad)
	}
}

// TestEntryNamesWhatAReleaseNeeds: an entry has the claim, the channel, and the token. A dash before the channel says that
// PUBSUB NUMSUB does not say whether the process listens.
func TestEntryNamesWhatAReleaseNeeds(t *testing.T) {
	require.Equal(t, "1500 redlatch:1 api-7/pid 12/a", Entry(1500*time.Millisecond, false, "redlatch:1", "api-7/pid 12/a"))
	require.Equal(t, "1 -redlatch:1 a", Entry(time.Millisecond, true, "redlatch:1", "a"))
}

// FuzzHandover: no message makes the parser panic. A message that it accepts has the token that it returns.
func FuzzHandover(f *testing.F) {
	f.Add("1700000000 999999 220000000123 23 2000 redlatch:1 a token the key")
	f.Add("1 1 1 5")
	f.Fuzz(func(t *testing.T, message string) {
		g, ok := parseGrant(message)
		if ok && (!strings.Contains(message, " "+g.Token) || g.Tick >= 1<<47 || g.At < 0) {
			t.Errorf("%q was read as %+v", message, g)
		}
	})
}

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
			start := w.Started(Grant{At: at, Arrived: later(base, end)}, factor).Mono.Sub(base.Mono)
			if start > s1+time.Microsecond || start > end {
				return false
			}
		}
		w.redis = 0
		return w.Started(Grant{At: at, Arrived: later(base, end)}, factor).Mono.Sub(base.Mono) <= s1
	}
	require.NoError(t, quick.Check(property, &quick.Config{MaxCount: 50_000}))
}

// TestHandedLeaseKeepsMostOfItsTTL: a second after the last look, with clocks of the same rate, the formula costs no more than
// the two trips and the drift of that second. If only the wall clock moved on, since the machine slept, that time counts.
func TestHandedLeaseKeepsMostOfItsTTL(t *testing.T) {
	base := clock.Now()
	w := Watch{base, time.Hour}
	arrived := later(base, 1002*time.Millisecond)
	require.Equal(t, 12*time.Millisecond, arrived.Since(w.Started(Grant{At: time.Hour + time.Second, Arrived: arrived}, 0.01)))
	arrived = clock.Instant{Mono: base.Mono.Add(time.Millisecond), Wall: base.Wall + time.Minute}
	start := w.Started(Grant{At: time.Hour + 500*time.Microsecond, Arrived: arrived}, 0.01)
	require.Greater(t, arrived.Since(start), 59*time.Second)
}

// TestHandedLeaseBeginsAtTheNewestQuestion: a handed lease is computed from the newest command that returned the time of
// Redis. Until one has, it begins at the newest command that may have queued the line.
func TestHandedLeaseBeginsAtTheNewestQuestion(t *testing.T) {
	base := clock.Now()
	at := func(seconds int) clock.Instant { return later(base, time.Duration(seconds)*time.Second) }
	g := Grant{At: time.Hour + 10*time.Second, Arrived: at(10)}
	var w Watch
	w.Sent(at(0))
	require.Equal(t, at(0), w.Started(g, 0))
	w.Sent(at(2))
	require.Equal(t, at(2), w.Started(g, 0))
	w.Told(at(1), time.Hour+3*time.Second)
	require.Equal(t, at(8), w.Started(g, 0))
	w.Sent(at(9))
	require.Equal(t, at(8), w.Started(g, 0), "this one has returned nothing yet")
	w.Told(at(4), time.Hour+5*time.Second)
	require.Equal(t, at(9), w.Started(g, 0))
	w.Told(at(3), time.Hour+3*time.Second)
	require.Equal(t, at(9), w.Started(g, 0), "a late reply to an older command")
}
