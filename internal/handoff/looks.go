package handoff

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
)

// The first of the queue looks about every lookEvery, and every lookOften if the holder may be a client that does not
// hand the lock on. Others look less often, down to lookRarely, while the holder stays the same.
const (
	lookEvery  = time.Second
	lookOften  = lookEvery / 4
	lookRarely = 4 * time.Second
)

// interval returns the time until the next look after a look of w that got was the answer to.
func (l *Waitlist) interval(w *Waiter, pause func(looks int, left time.Duration) time.Duration, got Refusal) time.Duration {
	polling := l.Subscription.IsDegraded()
	l.mu.Lock()
	defer l.mu.Unlock()
	if (polling || w.Degraded) && w.pauses == 0 {
		w.pauses = 1
	}
	var d time.Duration
	switch {
	case w.pauses > 0:
		w.pauses++
		return pause(w.pauses-1, got.Left)
	case got.First && got.Foreign:
		d = lookOften
	case got.First:
		d = lookEvery
	default:
		d = min(lookEvery<<min(l.keys[w.key].same, 2), lookRarely)
	}
	return d + rand.N(d/4)
}

// Poll has w look at the intervals of WithBackoff.
func (l *Waitlist) Poll(w *Waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w.pauses = max(w.pauses, 1)
}

// look has the first waiter of every key look now, and those whose entries were lost: messages may have been lost, or
// the data of Redis.
func (l *Waitlist) look() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, q := range l.keys {
		for i, w := range q.waiters {
			if i == 0 || !w.queued {
				w.lookSoon(0)
			}
		}
	}
}

// lookSoon has w look after d at the latest. The caller holds Waitlist.mu.
func (w *Waiter) lookSoon(d time.Duration) {
	at := time.Now().Add(d)
	if w.lookAt.IsZero() || at.Before(w.lookAt) {
		w.lookAt = at
		w.wakeUp()
	}
}

// OnRefusal notes the answer to a look of w that was sent at asked. err is the error of that look.
func (l *Waitlist) OnRefusal(w *Waiter, asked clock.Instant, got Refusal, err error) {
	polling := l.Subscription.IsDegraded()
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.keys[w.key]
	q.looked, q.ends, q.last, w.lookAt = time.Now(), time.Time{}, err, time.Time{}
	if got.Left > 0 {
		q.ends = q.looked.Add(got.Left + time.Millisecond)
	}
	if got.At == 0 {
		return
	}
	if q.redis == 0 || asked.Mono.After(q.asked.Mono) {
		q.asked, q.redis = asked, got.At
	}
	if q.holder == got.Holder {
		q.same++
	} else {
		q.holder, q.same = got.Holder, 0
	}
	l.firstLocked(w, got)
	switch { // the first of the queue looks before the others
	case got.First, got.Left == 0:
	case got.Fresh:
		q.ends = time.Time{}
	default:
		q.ends = q.looked.Add(max(got.Left+messageDelay, lookOften))
	}
	for _, other := range q.waiters {
		handed := other.token == got.Holder || slices.Contains(got.Handed, other.token)
		switch {
		case other == w:
		case handed && polling:
			other.lookSoon(0)
		case handed: // its message may be late or lost
			other.lookSoon(messageDelay)
		case got.Fresh && w.queued && other.queued: // the queue was lost
			other.queued = false
			if l.Subscription.IsReady() {
				other.lookSoon(0)
			}
		}
	}
	w.queued = true
}

// firstLocked notes whether w is the first of the queue. If the key has changed hands past it, its holders do not
// hand it on, and w polls from then on. A key that is kept after its release has not changed hands.
func (l *Waitlist) firstLocked(w *Waiter, got Refusal) {
	switch {
	case !got.First:
		w.seen = ""
		return
	case w.seen == "" && w.pauses > 0: // it has just become the first
		w.pauses = 1
	case w.seen != "" && w.seen != got.Holder && w.pauses == 0 && !got.Shared && !got.Kept:
		w.pauses = 1
	}
	w.seen = got.Holder
}

// OnError notes that a look of w failed with err. w looks again after pause.
func (l *Waitlist) OnError(w *Waiter, err error, pause time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.keys[w.key]
	q.looked, q.ends, q.last = time.Now(), time.Time{}, err
	w.lookAt = q.looked.Add(pause)
}

// Last returns the error of the last look for the key of w.
func (l *Waitlist) Last(w *Waiter) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.keys[w.key].last
}

// due returns how long w may sleep. every is the interval of looks, which the first waiter of the process makes.
func (l *Waitlist) due(w *Waiter, every time.Duration) (d time.Duration, forever bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := w.lookAt
	if q := l.keys[w.key]; q.waiters[0] == w {
		for _, t := range []time.Time{q.looked.Add(every), q.ends} {
			if !t.IsZero() && (at.IsZero() || t.Before(at)) {
				at = t
			}
		}
	}
	return time.Until(at), at.IsZero()
}
