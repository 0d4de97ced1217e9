package handoff

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/clock"
)

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
