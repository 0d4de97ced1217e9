package handoff

import (
	"context"
	crand "crypto/rand"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
)

// messageDelay is how long to wait for the message about a lock that a look found to be handed over.
const messageDelay = 100 * time.Millisecond

// A Waiter is one Lock call in the queue.
type Waiter struct {
	Entry    string // its place in the queue
	Degraded bool   // its process got no messages when it entered, so it polls

	key, token string
	deaf       bool          // SUBSCRIBE was refused when it entered
	told       bool          // a message ended its last sleep; only its goroutine uses it
	handed     chan Handover // buffers one
	wake       chan struct{} // buffers one: lookAt has changed, or the waiter is now the first

	// Guarded by Waitlist.mu.
	queued bool
	lookAt time.Time // when to look, even if it is not the first; zero: unset
	seen   string    // the holder at its last look as the first of the queue; empty: it was not the first
	pauses int       // looks at the intervals of WithBackoff; 0: it does not poll
	found  bool      // it got the lock by a look, not by a message
}

// A keyQueue has the waiters of this process for one key, in the order in which they came.
type keyQueue struct {
	waiters []*Waiter
	asked   clock.Instant // when the newest command that returned the time of Redis was sent
	redis   time.Duration // the time that it returned; 0: none yet
	looked  time.Time     // the last look or message
	ends    time.Time     // when the holder's lease may have ended; zero: unknown
	holder  string        // at the last look
	same    int           // looks in a row with this holder
	last    error         // of the last look of any waiter
}

// A Waitlist has all waiters of one Locker.
type Waitlist struct {
	Subscription *Subscription

	now      func() clock.Instant
	departed departures

	mu      sync.Mutex // guards the fields below and their contents
	keys    map[string]*keyQueue
	missing string        // the entry of a waiter that found its lock before the message came
	numbers *rand.ChaCha8 // of entries: hard to guess, and without system calls
}

// NewWaitlist returns a Waitlist that is handed locks through s. It calls degraded with the error of Redis when it
// refuses SUBSCRIBE or PUBLISH, so that waiters must poll.
func NewWaitlist(s *Subscription, now func() clock.Instant, degraded func(error)) *Waitlist {
	var seed [32]byte
	_, _ = crand.Read(seed[:]) // it never fails
	l := &Waitlist{Subscription: s, now: now, keys: make(map[string]*keyQueue), numbers: rand.NewChaCha8(seed)}
	s.deliver, s.changed, s.degraded = l.deliver, l.look, degraded
	return l
}

// Enter adds a waiter, for which Leave must be called. asked is a moment before its first command.
func (l *Waitlist) Enter(key, token string, ttl time.Duration, asked clock.Instant) *Waiter {
	w := &Waiter{key: key, token: token, handed: make(chan Handover, 1), wake: make(chan struct{}, 1)}
	w.Degraded, w.deaf = l.Subscription.state()
	l.mu.Lock()
	defer l.mu.Unlock()
	w.Entry = entry(ttl, w.Degraded, l.Subscription.channel, l.numbers.Uint64(), token)
	q := l.keys[key]
	if q == nil {
		q = &keyQueue{asked: asked, looked: time.Now()}
		l.keys[key] = q
	}
	q.waiters = append(q.waiters, w)
	return w
}

// Leave removes w and wakes the next waiter if w was the first. Nothing is delivered to w afterwards.
//
// If w found its lock by a look, the next one looks at once: its entry may be lost, and with a semaphore its message. A
// look that w was to make is made by the next one.
func (l *Waitlist) Leave(w *Waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.keys[w.key]
	i := slices.Index(q.waiters, w)
	q.waiters = slices.Delete(q.waiters, i, i+1)
	if len(q.waiters) == 0 {
		delete(l.keys, w.key)
		return
	}
	next := q.waiters[0]
	switch {
	case w.found:
		next.lookSoon(0)
	case !w.lookAt.IsZero():
		next.lookSoon(time.Until(w.lookAt))
	}
	if i == 0 {
		next.wakeUp()
	}
}

// Outdated reports whether w must queue anew: messages cannot reach its process any more, or SUBSCRIBE works again. A
// waiter that entered while only PUBLISH was refused polls to its end, and so keeps its place.
func (l *Waitlist) Outdated(w *Waiter) bool {
	degraded, deaf := l.Subscription.state()
	if !w.Degraded {
		return degraded
	}
	return w.deaf && !deaf
}

// wakeUp has w compute again when to look.
func (w *Waiter) wakeUp() {
	select {
	case w.wake <- struct{}{}:
	default: // it is already woken
	}
}

// deliver passes a lock to the waiter that it was handed to. If that waiter has given up, the lock is given back.
func (l *Waitlist) deliver(h Handover) {
	h.arrived = l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if h.entry == l.missing {
		l.missing = ""
	}
	if giveBack := l.departed.take(h.entry); giveBack != nil {
		go giveBack() // ends with its release
		return
	}
	q := l.keys[h.key]
	if q == nil {
		return
	}
	for _, w := range q.waiters {
		if w.Entry == h.entry {
			q.looked, q.ends, q.same = time.Now(), time.Time{}, 0
			w.lookAt = time.Time{} // the message is enough
			select {
			case w.handed <- h:
			default: // it has one, and looks again if that has expired
			}
			return
		}
	}
}

// Depart notes that entry is given up. giveBack runs if Redis hands it the lock before confirmed is called, which notes
// that it has left the queue.
func (l *Waitlist) Depart(entry string, giveBack func()) (confirmed func()) {
	l.departed.add(entry, giveBack)
	return func() { l.departed.take(entry) }
}

// Found notes that w got the lock by a look: it was free, or handed to w before. If it was handed and no message has said
// so, or says so soon, the subscription is replaced.
func (l *Waitlist) Found(w *Waiter, handed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w.lookAt = time.Time{} // it has looked
	// It expects no message, or the token had the key before.
	if w.Degraded || !w.queued {
		return
	}
	if handed && (w.told || len(w.handed) > 0) {
		return
	}
	w.found = true
	if !handed {
		return
	}
	l.missing = w.Entry
	time.AfterFunc(messageDelay, func() {
		l.mu.Lock()
		still := l.missing == w.Entry
		l.mu.Unlock()
		if still {
			l.Subscription.replace()
		}
	})
}

// Started returns when the lease of a lock began that was handed over.
func (l *Waitlist) Started(h Handover, drift float64) clock.Instant {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.keys[h.key]
	return handedAt(h.arrived, q.asked, q.redis, h.at, drift)
}

// Sleep waits until w is handed the lock, or until it is time to look. got is the refusal of its last look. pause returns
// the interval of a waiter that polls. ok is false if ctx ended.
func (l *Waitlist) Sleep(
	ctx context.Context, w *Waiter, pause func(looks int, left time.Duration) time.Duration, got Refusal,
) (handed *Handover, ok bool) {
	every := l.interval(w, pause, got)
	w.told = false
	var timer *time.Timer // waiters that are not first rarely need one
	for {
		var look <-chan time.Time
		if d, forever := l.due(w, every); !forever {
			if timer == nil {
				timer = time.NewTimer(d)
				defer timer.Stop()
			} else {
				timer.Reset(d)
			}
			look = timer.C
		}
		select {
		case h := <-w.handed:
			w.told = true
			return &h, true
		case <-w.wake:
		case <-look:
			return nil, true
		case <-ctx.Done():
			return nil, false
		}
	}
}
