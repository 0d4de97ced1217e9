package handoff

import (
	"time"

	"github.com/redlatch/redlatch/internal/clock"
)

// A Watch compares the clock of Redis with that of this machine, for the entry of a line. The zero value is that of a line
// that has not asked yet.
type Watch struct {
	asked clock.Instant // when the newest command that returned the time of Redis was sent
	redis time.Duration // the time that it returned; 0: none yet
}

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
