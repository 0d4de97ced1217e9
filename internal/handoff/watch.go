package handoff

import (
	"math/rand/v2"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
)

// The first of the queue looks about every LookEvery, and every lookOften if the holder may be a client that does not
// hand the lock on. Others look less often, down to lookRarely, while the holder stays the same.
const (
	LookEvery  = time.Second
	lookOften  = LookEvery / 4
	lookRarely = 4 * time.Second
)

// MessageDelay is how long to wait for the message about a lock that a look found to be handed over.
const MessageDelay = 100 * time.Millisecond

// A Watch says when the entry of a line looks at Redis. The zero value is that of a line that has not asked yet.
type Watch struct {
	asked  clock.Instant // when the newest command that returned the time of Redis was sent
	redis  time.Duration // the time that it returned; 0: none yet
	holder string        // at the last look
	same   int           // looks in a row with this holder
	seen   string        // the holder at the last look as the first of the queue; empty: it was not the first
	polls  int           // looks at the intervals of WithBackoff; 0: it does not poll
	passed bool          // holders do not hand the key on
}

// Next returns the Watch of the next entry of a line that was granted the key. found is set if the line found the key
// free. If its entry was in the queue then, nobody handed the key on. The line then polls until a message announces a lock.
func (w *Watch) Next(found bool) Watch {
	if w.passed || found && w.redis != 0 {
		return Watch{polls: 1, passed: true}
	}
	return Watch{}
}

// Announced notes that a message has announced a lock to the line.
func (w *Watch) Announced() { w.passed = false }

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

// Poll has the line look at the intervals of WithBackoff from now on.
func (w *Watch) Poll() { w.polls = max(w.polls, 1) }

// Polls reports whether the line looks at the intervals of WithBackoff.
func (w *Watch) Polls() bool { return w.polls > 0 }

// Refused notes the answer to a look that was sent at asked. If the line polls, Refused returns how many times it has.
// Otherwise it returns 0, and the time until the next look.
//
// If the key has changed hands past the first of the queue, its holders do not hand it on, and the line polls from then
// on. A key that is kept after its release has not changed hands.
func (w *Watch) Refused(asked clock.Instant, got Refusal) (polls int, next time.Duration) {
	if got.At == 0 {
		return w.poll(), LookEvery
	}
	w.Told(asked, got.At)
	if w.holder == got.Holder {
		w.same++
	} else {
		w.holder, w.same = got.Holder, 0
	}
	switch {
	case !got.First:
		w.seen = ""
	case w.seen == "" && w.polls > 0: // it has just become the first
		w.polls, w.seen = 1, got.Holder
	case w.seen != "" && w.seen != got.Holder && w.polls == 0 && !got.Shared && !got.Kept && !got.Handed:
		w.polls, w.passed, w.seen = 1, true, got.Holder
	default:
		w.seen = got.Holder
	}
	if polls := w.poll(); polls > 0 {
		return polls, 0
	}
	return 0, w.interval(got)
}

// poll counts a look of a line that polls.
func (w *Watch) poll() int {
	if w.polls == 0 {
		return 0
	}
	w.polls++
	return w.polls - 1
}

// interval returns the time until the next look. The first of the queue looks when the holder's lease may have ended, the
// others soon after it.
func (w *Watch) interval(got Refusal) time.Duration {
	every, ends := LookEvery, time.Duration(0)
	switch {
	case got.First && got.Foreign:
		every = lookOften
	case got.First:
	default:
		every = min(LookEvery<<min(w.same, 2), lookRarely)
	}
	every += rand.N(every / 4)
	switch {
	case got.Left == 0, got.Fresh && !got.First:
		return every
	case got.First:
		ends = got.Left + time.Millisecond
	default:
		ends = max(got.Left+MessageDelay, lookOften)
	}
	return min(every, ends)
}
