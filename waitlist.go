package redlatch

import (
	"context"
	crand "crypto/rand"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// messageDelay is how long to wait for the message about a lock that a look found to be handed over.
const messageDelay = 100 * time.Millisecond

// A waiter is one Lock call in the queue.
type waiter struct {
	key, token string
	entry      string        // its place in the queue
	handed     chan delivery // buffers one
	wake       chan struct{} // buffers one: lookAt has changed, or the waiter is now the first

	// Guarded by waitlist.mu.
	queued bool
	lookAt time.Time // when to look, even if it is not the first; zero: unset
	seen   string    // the holder at its last look as the first of the queue; empty: it was not the first
	polls  int       // looks at the intervals of WithBackoff; 0: it does not poll
	found  bool      // it got the lock by a look, not by a message
}

type delivery struct {
	handover
	arrived instant // of its message
}

// A keyQueue has the waiters of this process for one key, in the order in which they came.
type keyQueue struct {
	waiters []*waiter
	asked   instant       // when the newest command that returned the time of Redis was sent
	redis   time.Duration // the time that it returned; 0: none yet
	looked  time.Time     // the last look or message
	ends    time.Time     // when the holder's lease may have ended; zero: unknown
	holder  string        // at the last look
	same    int           // looks in a row with this holder
	last    error         // of the last look of any waiter
}

// A waitlist has all waiters of one Locker.
type waitlist struct {
	engine       *engine
	subscription *subscription

	departed departures

	mu      sync.Mutex // guards the fields below and their contents
	keys    map[string]*keyQueue
	missing string        // the entry of a waiter that found its lock before the message came
	numbers *rand.ChaCha8 // of entries: hard to guess, and without system calls
}

func newWaitlist(e *engine, s *subscription) *waitlist {
	var seed [32]byte
	_, _ = crand.Read(seed[:]) // it never fails
	l := &waitlist{engine: e, subscription: s, keys: make(map[string]*keyQueue), numbers: rand.NewChaCha8(seed)}
	s.deliver = l.deliver
	s.changed = l.look
	s.degraded = func(err error) {
		if hook := e.cfg.hooks.Degraded; hook != nil {
			hook(Event{Strategy: e.strategy.name(), Err: err})
		}
	}
	return l
}

// enter adds a waiter, which must leave. asked is a moment before its first command. polls says that its process gets
// no messages.
func (l *waitlist) enter(p *acquireParams, polls bool, asked instant) *waiter {
	w := &waiter{key: p.key, token: p.token, handed: make(chan delivery, 1), wake: make(chan struct{}, 1)}
	l.mu.Lock()
	defer l.mu.Unlock()
	w.entry = entry(p.ttl, polls, l.subscription.channel, l.numbers.Uint64(), p.token)
	q := l.keys[w.key]
	if q == nil {
		q = &keyQueue{asked: asked, looked: time.Now()}
		l.keys[w.key] = q
	}
	q.waiters = append(q.waiters, w)
	return w
}

// leave removes w and wakes the next waiter if w was the first. If w found its lock by a look, the next one looks at once:
// its entry may be lost, and with a semaphore its message. Nothing is delivered to w afterwards.
func (l *waitlist) leave(w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.keys[w.key]
	i := slices.Index(q.waiters, w)
	q.waiters = slices.Delete(q.waiters, i, i+1)
	switch {
	case len(q.waiters) == 0:
		delete(l.keys, w.key)
	case w.found:
		q.waiters[0].lookSoon(0)
	case i == 0:
		q.waiters[0].wakeUp()
	}
}

// wakeUp has w compute again when to look.
func (w *waiter) wakeUp() {
	select {
	case w.wake <- struct{}{}:
	default: // it is already woken
	}
}

// deliver passes a lock to the waiter that it was handed to. If that waiter has given up, the lock is given back.
func (l *waitlist) deliver(h handover) {
	arrived := l.engine.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if h.entry == l.missing {
		l.missing = ""
	}
	if a := l.departed.take(h.entry); a != nil {
		go a.leaveQueue(context.Background(), h.entry) // ends with its release
		return
	}
	q := l.keys[h.key]
	if q == nil {
		return
	}
	for _, w := range q.waiters {
		if w.entry == h.entry {
			q.looked, q.ends, q.same = time.Now(), time.Time{}, 0
			select {
			case w.handed <- delivery{h, arrived}:
			default: // it has one, and looks again if that has expired
			}
			return
		}
	}
}

// found notes that w got the lock by a look: it was free, or handed to w before. If it was handed and no message says so
// soon, the subscription is replaced.
func (l *waitlist) found(w *waiter, handed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !w.queued || handed && len(w.handed) > 0 { // the token had the key before, or the message has come
		return
	}
	w.found = true
	if !handed {
		return
	}
	l.missing = w.entry
	time.AfterFunc(messageDelay, func() {
		l.mu.Lock()
		still := l.missing == w.entry
		l.mu.Unlock()
		if still {
			l.subscription.replace()
		}
	})
}

// started returns when the lease of a lock began that was handed over.
func (l *waitlist) started(d delivery, drift float64) instant {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.keys[d.key]
	return handedAt(d.arrived, q.asked, q.redis, d.at, drift)
}

// sleep waits until w is handed the lock, or until it is time to look. ok is false if ctx ended.
func (l *waitlist) sleep(ctx context.Context, w *waiter, every time.Duration) (handed *delivery, ok bool) {
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
		case d := <-w.handed:
			return &d, true
		case <-w.wake:
		case <-look:
			return nil, true
		case <-ctx.Done():
			return nil, false
		}
	}
}
