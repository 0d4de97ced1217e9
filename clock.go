package redlatch

import (
	"math"
	"time"
)

// margin is taken off every lease, however short, since Redis counts whole milliseconds.
const margin = 2 * time.Millisecond

// validity returns how long a lease of ttl is trusted, counted from its start:
//
//	until = start + TTL − drift, drift = TTL × factor + 2 ms
//
// start is read before the request leaves, so a slow reply shortens the lease.
func validity(ttl time.Duration, factor float64) time.Duration {
	return ttl - time.Duration(float64(ttl)*factor) - margin
}

// ttlFor returns the least TTL, in whole milliseconds, whose validity is d, but no more than longest.
func ttlFor(d time.Duration, factor float64) time.Duration {
	ms := math.Ceil((float64(d) + float64(margin)) / (1 - factor) / float64(time.Millisecond))
	return milliseconds(int64(min(ms, math.MaxInt64/2)))
}

// An instant is one moment on both clocks of this machine. The monotonic clock may stop while the machine sleeps, and
// the wall clock may be set.
type instant struct {
	mono time.Time     // compared by its monotonic reading
	wall time.Duration // since 1970
}

func readClocks() instant {
	t := time.Now()
	return instant{mono: t, wall: time.Duration(t.UnixNano())}
}

// since returns the time from earlier to i on the clock that is further on.
func (i instant) since(earlier instant) time.Duration {
	return max(i.mono.Sub(earlier.mono), i.wall-earlier.wall)
}

// handedAt returns when a lease began that Redis granted at the time at of its own clock. The message arrived at
// arrived. An earlier command, sent at asked, returned the time redis of that clock. So Redis read that clock after
// asked, and the message took no longer than the time since asked here, less the time since redis there:
//
//	age = (arrived − asked) − (at − redis) × (1 − drift), at least 0
//	start = arrived − age
//
// Only the rates of the two clocks matter, not their settings. If no command returned the time (redis is 0), the
// lease begins at asked, which is before the waiter queued.
func handedAt(arrived, asked instant, redis, at time.Duration, drift float64) instant {
	age := arrived.since(asked)
	if redis != 0 {
		there := float64(at - redis)
		if there > 0 {
			there *= 1 - drift
		} else {
			there *= 1 + drift
		}
		age -= time.Duration(there)
	}
	age = max(age, 0)
	return instant{mono: arrived.mono.Add(-age), wall: arrived.wall - age}
}
