// Package clock computes how long a lease lasts, on the two clocks of this machine.
package clock

import (
	"math"
	"time"
)

// margin is taken off every lease, however short, since Redis counts whole milliseconds.
const margin = 2 * time.Millisecond

// Validity returns how long a lease of ttl is trusted, counted from its start:
//
//	until = start + TTL − drift, drift = TTL × factor + 2 ms
//
// start is read before the request leaves, so a slow reply shortens the lease.
func Validity(ttl time.Duration, factor float64) time.Duration {
	return ttl - time.Duration(float64(ttl)*factor) - margin
}

// TTLFor returns the least TTL, in whole milliseconds, whose validity is d, but no more than Longest.
func TTLFor(d time.Duration, factor float64) time.Duration {
	ms := math.Ceil((float64(d) + float64(margin)) / (1 - factor) / float64(time.Millisecond))
	return Milliseconds(int64(min(ms, math.MaxInt64/2)))
}

// Longest is the longest time that options and replies are cut to. Sums of several do not overflow a Duration.
const Longest = 100 * 365 * 24 * time.Hour

// Milliseconds returns n ms, at most Longest.
func Milliseconds(n int64) time.Duration {
	return time.Duration(min(n, Longest.Milliseconds())) * time.Millisecond
}

// An Instant is one moment on both clocks of this machine. The monotonic clock may stop while the machine sleeps, and the wall
// clock may be set.
type Instant struct {
	Mono time.Time     // compared by its monotonic reading
	Wall time.Duration // since 1970
}

// Now reads both clocks.
func Now() Instant {
	t := time.Now()
	return Instant{Mono: t, Wall: time.Duration(t.UnixNano())}
}

// Since returns the time from earlier to i on the clock that is further on.
func (i Instant) Since(earlier Instant) time.Duration {
	return max(i.Mono.Sub(earlier.Mono), i.Wall-earlier.Wall)
}

// AtLeast returns the time from earlier to i on the clock that advanced less, or 0 if that was set back.
func (i Instant) AtLeast(earlier Instant) time.Duration {
	return max(min(i.Mono.Sub(earlier.Mono), i.Wall-earlier.Wall), 0)
}
