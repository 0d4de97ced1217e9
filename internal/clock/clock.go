// Package clock computes how long a lease lasts, on the two clocks of this machine.
package clock

import (
	"sync/atomic"
	"time"
)

const (
	// margin is taken off every lease, however short, since Redis counts whole milliseconds.
	margin = 2 * time.Millisecond

	// driftShare is the part of a time by which two clocks differ at most.
	driftShare = 100
)

// Drift returns by how much two clocks differ at most when a time has passed on one of them.
func Drift(d time.Duration) time.Duration { return d.Abs() / driftShare }

// Validity returns how long a lease of ttl is trusted, counted from its start. Its holder stops a
// grace before others can start:
//
//	until = start + TTL − drift − grace, drift = TTL / 100 + 2 ms
//
// start is read before the request leaves, so a slow reply shortens the lease.
func Validity(ttl, grace time.Duration) time.Duration { return ttl - Drift(ttl) - margin - grace }

// TTLFor returns the least TTL, in whole milliseconds, whose validity is at least d, but no more
// than Longest.
func TTLFor(d, grace time.Duration) time.Duration {
	const each = time.Millisecond - time.Millisecond/driftShare // of validity, for a millisecond of TTL
	d = min(d, Longest) + margin + min(grace, Longest)
	return Milliseconds(int64((d + each - 1) / each))
}

// Longest is the longest time that options and replies are cut to. Sums of several do not overflow
// a Duration.
const Longest = 100 * 365 * 24 * time.Hour

// Milliseconds returns n ms, at most Longest.
func Milliseconds(n int64) time.Duration {
	return time.Duration(min(n, Longest.Milliseconds())) * time.Millisecond
}

// A Mono is an instant on the monotonic clock of this process, which was set to the time since 1970
// when the process began. Zero is no instant. A bubble of testing/synctest has one clock, with the
// time since 1970.
type Mono time.Duration

var (
	begin  = time.Now()
	latest atomic.Pointer[time.Time] // a reading of both clocks since the wall clock was set
)

// monoOf returns the instant of t, which has a monotonic reading, or is of a bubble.
func monoOf(t time.Time) Mono { return Mono(t.Sub(begin) + time.Duration(begin.UnixNano())) }

// MonoNow reads the monotonic clock.
func MonoNow() Mono { return monoOf(time.Now()) }

// MonoOf returns the instant of t, which may have no monotonic reading, or Longest from now if that is
// earlier.
func MonoOf(t time.Time) Mono { return MonoNow().Add(min(time.Until(t), Longest)) }

// Add returns the instant a time later.
func (m Mono) Add(d time.Duration) Mono { return m + Mono(d) }

// Before reports whether m is before o.
func (m Mono) Before(o Mono) bool { return m < o }

// Sub returns the time from earlier to m.
func (m Mono) Sub(earlier Mono) time.Duration { return time.Duration(m - earlier) }

// Time returns the instant as others know it. It is the same each time, unless the wall clock was
// set, or the machine slept.
func (m Mono) Time() time.Time {
	now, base := time.Now(), latest.Load()
	wall := now.Round(0)
	switch bubble := now == wall; { //nolint:staticcheck // one without a monotonic reading
	case bubble:
		return time.Unix(0, int64(m))
	case base == nil, (wall.Sub(base.Round(0)) - now.Sub(*base)).Abs() > time.Millisecond:
		reading := now // now itself costs no allocation
		base = &reading
		latest.Store(base)
	}
	return base.Add(m.Sub(monoOf(*base)))
}

// Deadline returns the instant for a context, whose end the monotonic clock decides. Unlike Time, it
// reads no clock, and may show another time than the wall clock does, if that was set.
func (m Mono) Deadline() time.Time {
	return begin.Add(time.Duration(m) - time.Duration(begin.UnixNano()))
}

// A Redis is an instant on the clock of a Redis: the time since 1970. Zero is no instant.
type Redis time.Duration

// RedisAt returns the instant that TIME answers with.
func RedisAt(seconds, micros int64) Redis {
	return Redis(time.Duration(seconds)*time.Second + time.Duration(micros)*time.Microsecond)
}

// Sub returns the time from earlier to r.
func (r Redis) Sub(earlier Redis) time.Duration { return time.Duration(r - earlier) }

// Time returns r as a time.
func (r Redis) Time() time.Time { return time.Unix(0, int64(r)) }

// An Instant is one moment on both clocks of this machine. The monotonic clock may stop while the
// machine sleeps, and the wall clock may be set.
type Instant struct {
	Mono Mono
	Wall time.Duration // since 1970
}

// Now reads both clocks.
func Now() Instant {
	t := time.Now()
	return Instant{Mono: monoOf(t), Wall: time.Duration(t.UnixNano())}
}

// Add returns the instant a time later on both clocks.
func (i Instant) Add(d time.Duration) Instant { return Instant{Mono: i.Mono.Add(d), Wall: i.Wall + d} }

// Since returns the time from earlier to i on the clock that is further on.
func (i Instant) Since(earlier Instant) time.Duration {
	return max(i.Mono.Sub(earlier.Mono), i.Wall-earlier.Wall)
}

// AtLeast returns the time from earlier to i on the clock that advanced less, or 0 if that was set
// back.
func (i Instant) AtLeast(earlier Instant) time.Duration {
	return max(min(i.Mono.Sub(earlier.Mono), i.Wall-earlier.Wall), 0)
}
