package handoff

import (
	"math/rand/v2"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
)

// A line looks at these intervals, which double: the first of the queue more often than the others.
const (
	shortestLook = 250 * time.Millisecond
	longestLook  = time.Second // of the first; the others look half as often, from longestLook on

	headStart = 100 * time.Millisecond // of the first, when a lease can have ended
)

// Pause returns the time until the next look, after a number of looks. first says that the line is the first of the queue. It
// looks when the holder's lease, of which left is left, can have ended; the others look soon after it. A left of 0 is unknown.
func Pause(first bool, left time.Duration, looks int) time.Duration {
	looks = min(looks, 4)
	if first {
		every := jitter(min(shortestLook<<looks, longestLook))
		if left > 0 {
			return min(every, left+time.Millisecond)
		}
		return every
	}
	every := jitter(min(longestLook<<looks, 2*longestLook))
	if left > 0 {
		return min(every, max(left+headStart, shortestLook))
	}
	return every
}

// jitter adds up to a quarter to d.
func jitter(d time.Duration) time.Duration { return d + rand.N(d/4) }

// A Watch compares the clock of Redis with that of this machine, for the entry of a line. The zero value is that of a line
// that has not asked yet.
type Watch struct {
	asked clock.Instant // when the newest command that returned the time of Redis was sent
	redis time.Duration // the time that it returned; 0: none yet
}

// Asked returns when the newest command was sent that returned the time of Redis.
func (w *Watch) Asked() time.Time { return w.asked.Mono }

// Sent notes when a command was sent that may return the time of Redis, unless one has returned it before.
func (w *Watch) Sent(asked clock.Instant) {
	if w.redis == 0 {
		w.asked = asked
	}
}

// Told notes that a command, sent at asked, returned the time redis.
func (w *Watch) Told(asked clock.Instant, redis time.Duration) {
	if w.redis == 0 || asked.Mono.After(w.asked.Mono) {
		w.asked, w.redis = asked, redis
	}
}

// Started returns when the lease of a lock began that was handed over.
func (w *Watch) Started(g Grant, drift float64) clock.Instant {
	return handedAt(g.Arrived, w.asked, w.redis, g.At, drift)
}
