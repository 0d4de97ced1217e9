package redlatch

import (
	"context"
	crand "crypto/rand"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// messageDelay is how long a message may take to reach a waiter that is said to have the lock.
const messageDelay = 100 * time.Millisecond

// A waiter is one Lock call that waits to be handed its lock.
type waiter struct {
	key, token string
	entry      string        // its place in the queue
	handed     chan delivery // has room for one
	wake       chan struct{} // has room for one: look at lookAt, or at being the first, again

	// Guarded by waitlist.mu.
	queued bool
	lookAt time.Time // when to look, whoever is the first; zero: no need
	under  string    // who held the key when nobody was before w; empty: somebody was
	polls  int       // looks at the intervals of WithBackoff; 0: there is no need
}

// delivery is a handover with the moment of its arrival.
type delivery struct {
	handover
	arrived instant
}

// A keyQueue is where the waiters for one key sit, in the order in which they came.
type keyQueue struct {
	waiters []*waiter
	asked   instant       // when the newest command was sent that Redis told the time
	told    time.Duration // the time it told; 0: none yet
	looked  time.Time     // when somebody last heard of the key
	ends    time.Time     // when to look for a lease of the holder that has ended; zero: unknown
	holder  string        // who had the key at the last look
	still   int           // looks in a row at which it had
	last    error         // what the last look of any of them met with
}

// A waitlist is where all waiters of one Locker sit.
type waitlist struct {
	engine       *engine
	subscription *subscription

	departed departures

	mu      sync.Mutex // guards the fields below, and what is in them
	keys    map[string]*keyQueue
	missing string        // the entry of a waiter that has found its lock before the message came
	numbers *rand.ChaCha8 // of places: nobody can guess them, and they cost no system call
}

func newWaitlist(e *engine, s *subscription) *waitlist {
	var seed [32]byte
	_, _ = crand.Read(seed[:]) // it never fails
	b := &waitlist{engine: e, subscription: s, keys: make(map[string]*keyQueue), numbers: rand.NewChaCha8(seed)}
	s.deliver = b.deliver
	s.changed = b.look
	s.degraded = func(err error) {
		if hook := e.cfg.hooks.Degraded; hook != nil {
			hook(Event{Strategy: e.strategy.name(), Err: err})
		}
	}
	return b
}

// enter seats a waiter, who must leave. asked is a moment before anything is sent for it. polls says that
// its process cannot be told of its turn.
func (b *waitlist) enter(p *acquireParams, polls bool, asked instant) *waiter {
	w := &waiter{key: p.key, token: p.token, handed: make(chan delivery, 1), wake: make(chan struct{}, 1)}
	b.mu.Lock()
	defer b.mu.Unlock()
	w.entry = entry(p.ttl, polls, b.subscription.channel, b.numbers.Uint64(), p.token)
	in := b.keys[w.key]
	if in == nil {
		in = &keyQueue{asked: asked, looked: time.Now()}
		b.keys[w.key] = in
	}
	in.waiters = append(in.waiters, w)
	return w
}

// leave takes w out of its room, and has the next one look from now on. Nothing is delivered to w
// any more.
func (b *waitlist) leave(w *waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	in := b.keys[w.key]
	i := slices.Index(in.waiters, w)
	in.waiters = slices.Delete(in.waiters, i, i+1)
	switch {
	case len(in.waiters) == 0:
		delete(b.keys, w.key)
	case i == 0:
		in.waiters[0].wakeUp()
	}
}

// wakeUp has w think again about when to look.
func (w *waiter) wakeUp() {
	select {
	case w.wake <- struct{}{}:
	default: // it is about to anyway
	}
}

// deliver gives a lock to the waiter it was handed to. One that nobody waits for any more is given back
// where the waiter that gave up could not say so.
func (b *waitlist) deliver(h handover) {
	arrived := b.engine.now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if h.entry == b.missing {
		b.missing = ""
	}
	if a := b.departed.take(h.entry); a != nil {
		go a.leaveQueue(context.Background(), h.entry) // ends with its release
		return
	}
	in := b.keys[h.key]
	if in == nil {
		return
	}
	for _, w := range in.waiters {
		if w.entry == h.entry {
			in.looked, in.ends, in.still = time.Now(), time.Time{}, 0
			select {
			case w.handed <- delivery{h, arrived}:
			default: // it has one, and looks if that is of no use
			}
			return
		}
	}
}

// missed notes that w has found, by a look, a lock that was handed to it. Unless the message comes soon, the
// subscription is one that nothing comes through.
func (b *waitlist) missed(w *waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !w.queued || len(w.handed) > 0 { // a token that the caller chose had the key before, or the message is there
		return
	}
	b.missing = w.entry
	for _, next := range b.keys[w.key].waiters {
		if next != w { // a semaphore may have several that are handed permits
			next.lookSoon(0)
			break
		}
	}
	time.AfterFunc(messageDelay, func() {
		b.mu.Lock()
		still := b.missing == w.entry
		b.mu.Unlock()
		if still {
			b.subscription.replace()
		}
	})
}

// started returns when a lease began that was handed to a waiter for key.
func (b *waitlist) started(d delivery, drift float64) instant {
	b.mu.Lock()
	defer b.mu.Unlock()
	in := b.keys[d.key]
	return handedAt(d.arrived, in.asked, in.told, d.at, drift)
}

// sleep waits until w was handed the lock, or it is time to look. It is not ok when ctx ended.
func (b *waitlist) sleep(ctx context.Context, w *waiter, every time.Duration) (handed *delivery, ok bool) {
	var timer *time.Timer // made for the first of a room, or when there is trouble
	for {
		var look <-chan time.Time
		if d, forever := b.due(w, every); !forever {
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
