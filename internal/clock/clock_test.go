package clock

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestValidity: until = start + TTL − drift, drift = TTL × factor + 2 ms. TTLFor is the inverse, rounded up to whole milliseconds.
func TestValidity(t *testing.T) {
	for _, c := range []struct {
		ttl      time.Duration
		factor   float64
		validity time.Duration
	}{
		{10 * time.Second, 0.01, 9898 * time.Millisecond},
		{10 * time.Second, 0, 9998 * time.Millisecond},
		{time.Millisecond, 0, -time.Millisecond},
		{100 * time.Millisecond, 0.5, 48 * time.Millisecond},
	} {
		require.Equal(t, c.validity, Validity(c.ttl, c.factor))
		require.Equal(t, c.ttl, TTLFor(c.validity, c.factor))
	}
	require.Equal(t, 4*time.Millisecond, TTLFor(time.Millisecond+1, 0))
	require.Equal(t, Longest, TTLFor(math.MaxInt64, 0.99))
	require.Equal(t, Longest, TTLFor(math.MaxInt64, 1-1e-12), "more than an int64 has room for")
	require.Equal(t, Longest, Milliseconds(math.MaxInt64))
	require.Equal(t, 7*time.Millisecond, Milliseconds(7))
}

// TestSince: a time is over when the clock that is further on says so. What must last counts on the one that advanced less.
func TestSince(t *testing.T) {
	start := Now()
	require.InDelta(t, time.Now().UnixNano(), start.Wall, float64(time.Minute))
	at := func(mono, wall time.Duration) Instant { return Instant{start.Mono.Add(mono), start.Wall + wall} }
	for _, c := range []struct{ mono, wall, since, least time.Duration }{
		{time.Second, time.Second, time.Second, time.Second},
		{time.Second, time.Hour, time.Hour, time.Second}, // the machine slept
		{time.Second, -time.Hour, time.Second, 0},        // the wall clock was set back
		{time.Hour, time.Second, time.Hour, time.Second},
	} {
		require.Equal(t, c.since, at(c.mono, c.wall).Since(start))
		require.Equal(t, c.least, at(c.mono, c.wall).AtLeast(start))
	}
}
