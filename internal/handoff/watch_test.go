package handoff

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/clock"
)

// pauses returns the shortest and the longest of many pauses.
func pauses(first bool, left time.Duration, looks int) (shortest, longest time.Duration) {
	shortest = time.Hour
	for range 2000 {
		d := Pause(first, left, looks)
		shortest, longest = min(shortest, d), max(longest, d)
	}
	return shortest, longest
}

// TestPausesDouble: the pauses of the first of the queue double from 250 ms to 1 s, and those of the others from 1 s to 2 s. At
// most a quarter is added, at random.
func TestPausesDouble(t *testing.T) {
	for _, left := range []time.Duration{0, time.Hour} { // 0 is unknown
		for first, want := range map[bool][]time.Duration{
			true:  {250 * time.Millisecond, 500 * time.Millisecond, time.Second, time.Second},
			false: {time.Second, 2 * time.Second, 2 * time.Second, 2 * time.Second},
		} {
			for looks, d := range append(want, want[3], want[3]) {
				shortest, longest := pauses(first, left, looks)
				require.GreaterOrEqual(t, shortest, d)
				require.Less(t, longest, d+d/4)
				require.Greater(t, longest-shortest, d/5, "processes look at different times")
			}
			_, longest := pauses(first, left, 1<<40)
			require.Less(t, longest, want[3]+want[3]/4)
		}
	}
}

// TestLookComesWhenTheLeaseCanHaveEnded: a crashed holder costs what is left of its TTL. The first of the queue looks 1 ms
// later. The others look 100 ms after its end, and no sooner than 250 ms from now, so that the first has had time to look.
func TestLookComesWhenTheLeaseCanHaveEnded(t *testing.T) {
	for _, c := range []struct{ left, first, other time.Duration }{
		{time.Millisecond, 2 * time.Millisecond, 250 * time.Millisecond},
		{149 * time.Millisecond, 150 * time.Millisecond, 250 * time.Millisecond},
		{300 * time.Millisecond, 301 * time.Millisecond, 400 * time.Millisecond},
		{899 * time.Millisecond, 900 * time.Millisecond, 999 * time.Millisecond},
	} {
		for looks := 2; looks < 6; looks++ { // all later than that
			shortest, longest := pauses(true, c.left, looks)
			require.Equal(t, c.first, shortest, c.left)
			require.Equal(t, c.first, longest, c.left)
			shortest, longest = pauses(false, c.left, looks)
			require.Equal(t, c.other, shortest, c.left)
			require.Equal(t, c.other, longest, c.left)
		}
	}
}

// TestHandedLeaseBeginsAtTheNewestQuestion: a handed lease is computed from the newest command that returned the time of
// Redis. Until one has, it begins at the newest command that may have queued the line.
func TestHandedLeaseBeginsAtTheNewestQuestion(t *testing.T) {
	base := clock.Now()
	at := func(d time.Duration) clock.Instant {
		return clock.Instant{Mono: base.Mono.Add(d), Wall: base.Wall + d}
	}
	g := Grant{At: time.Hour + 10*time.Second, Arrived: at(10 * time.Second)}
	var w Watch
	w.Sent(at(0))
	require.Equal(t, at(0), w.Started(g, 0))
	w.Sent(at(2 * time.Second))
	require.Equal(t, at(2*time.Second), w.Started(g, 0))
	w.Told(at(time.Second), time.Hour+3*time.Second)
	require.Equal(t, at(8*time.Second), w.Started(g, 0))
	w.Sent(at(9 * time.Second))
	require.Equal(t, at(8*time.Second), w.Started(g, 0), "this one has returned nothing yet")
	w.Told(at(4*time.Second), time.Hour+5*time.Second)
	require.Equal(t, at(9*time.Second), w.Started(g, 0))
	w.Told(at(3*time.Second), time.Hour+3*time.Second)
	require.Equal(t, at(9*time.Second), w.Started(g, 0), "a late reply to an older command")
}
