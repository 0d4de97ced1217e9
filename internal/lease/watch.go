package lease

import "github.com/redlatch/redlatch/internal/clock"

// A Watch compares the clock of Redis with that of this machine, for a lock that may be handed
// over. The zero value is that of a line that has not asked yet.
type Watch struct {
	asked clock.Instant // when the newest command that returned the time of Redis was sent
	redis clock.Redis   // the time that it returned; 0: none yet
}

// Sent notes when a command was sent that may return the time of Redis, unless one has returned it
// before.
func (w *Watch) Sent(asked clock.Instant) {
	if w.redis == 0 {
		w.asked = asked
	}
}

// Told notes that a command, sent at asked, returned the time redis.
func (w *Watch) Told(asked clock.Instant, redis clock.Redis) {
	if w.redis == 0 || w.asked.Mono.Before(asked.Mono) {
		w.asked, w.redis = asked, redis
	}
}

// Started returns when a lease began that was handed over. Redis granted it at the time granted of
// its own clock, and this process learned of that at arrived. Redis read the time redis of that
// clock after asked. So the message took no longer than the time since asked here, less the time
// since redis there:
//
//	age = (arrived − asked) − (granted − redis) × 99 %, at least 0
//	start = arrived − age
//
// If granted − redis is negative, since the command was carried out after the release, it counts ×
// 101 %. Only the rates of the two clocks matter, not their settings. If no command has
// returned the time, the lease begins at asked, which is before the line queued.
func (w *Watch) Started(granted clock.Redis, arrived clock.Instant) clock.Instant {
	age := arrived.Since(w.asked)
	if w.redis != 0 {
		there := granted.Sub(w.redis)
		age -= there - clock.Drift(there)
	}
	age = max(age, 0)
	return arrived.Add(-age)
}
