package redlatch

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// messageDelay is how long a message may take to reach a waiter that is said to have the lock.
const messageDelay = 100 * time.Millisecond

// A waiter is one Lock call that waits to be handed its lock.
type waiter struct {
	key, token string
	handed     chan delivery // has room for one
	wake       chan struct{} // has room for one: look at lookAt, or at being the first, again

	queued bool      // guarded by waitlist.mu
	lookAt time.Time // likewise; when to look, whoever is the first; zero: no need
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
	ends    time.Time     // when the holder's lease can have ended, where the room's first is the first of all; zero: unknown
}

// A waitlist is where all waiters of one Locker sit.
type waitlist struct {
	engine       *engine
	subscription *subscription
	waiters      atomic.Uint64 // that there ever were

	mu   sync.Mutex // guards the fields below, and what is in them
	keys map[string]*keyQueue
}

func newWaitlist(e *engine, s *subscription) *waitlist {
	b := &waitlist{engine: e, subscription: s, keys: make(map[string]*keyQueue)}
	s.deliver = b.deliver
	s.confirmed = b.look
	s.degraded = func(err error) {
		if hook := e.cfg.hooks.Degraded; hook != nil {
			hook(Event{Strategy: e.strategy.name(), Err: err})
		}
	}
	return b
}

// enter seats a waiter, who must leave. asked is a moment before anything is sent for it.
func (b *waitlist) enter(key, token string, asked instant) *waiter {
	w := &waiter{key: key, token: token, handed: make(chan delivery, 1), wake: make(chan struct{}, 1)}
	b.mu.Lock()
	defer b.mu.Unlock()
	in := b.keys[key]
	if in == nil {
		in = &keyQueue{asked: asked, looked: time.Now()}
		b.keys[key] = in
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

// deliver gives a lock to the waiter it was handed to. One that nobody waits for any more was, or
// is about to be, given back by the waiter that gave up.
func (b *waitlist) deliver(h handover) {
	arrived := b.engine.now()
	b.mu.Lock()
	defer b.mu.Unlock()
	in := b.keys[h.key]
	if in == nil {
		return
	}
	for _, w := range in.waiters {
		if w.token == h.token {
			in.looked, in.ends = time.Now(), time.Time{}
			select {
			case w.handed <- delivery{h, arrived}:
			default: // it has one, and looks if that is of no use
			}
			return
		}
	}
}

// look has the first of every room look now: messages may have been lost. So do those who lost their
// places meanwhile.
func (b *waitlist) look() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, in := range b.keys {
		for i, w := range in.waiters {
			if i == 0 || !w.queued {
				w.lookSoon(0)
			}
		}
	}
}

// lookSoon has w look after d at the latest. waitlist.mu is held.
func (w *waiter) lookSoon(d time.Duration) {
	at := time.Now().Add(d)
	if w.lookAt.IsZero() || at.Before(w.lookAt) {
		w.lookAt = at
		w.wakeUp()
	}
}

// onReply notes what a look of w, sent at asked, was told about a lock that is held.
func (b *waitlist) onReply(w *waiter, asked instant, got acquireReply) {
	b.mu.Lock()
	defer b.mu.Unlock()
	in := b.keys[w.key]
	in.looked, in.ends, w.lookAt = time.Now(), time.Time{}, time.Time{}
	if got.first && got.left > 0 {
		in.ends = in.looked.Add(got.left + time.Millisecond)
	}
	if got.at == 0 {
		return
	}
	if in.told == 0 || asked.mono.After(in.asked.mono) {
		in.asked, in.told = asked, got.at
	}
	for _, other := range in.waiters {
		switch {
		case other == w:
		case other.token == got.holder: // its message is late, or lost
			other.lookSoon(messageDelay)
		case got.fresh && w.queued && other.queued: // the queue was lost
			other.queued = false
			if b.subscription.isReady() {
				other.lookSoon(0)
			}
		}
	}
	w.queued = true
}

// onError notes that a look of w failed: it looks again after pause.
func (b *waitlist) onError(w *waiter, pause time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	in := b.keys[w.key]
	in.looked, in.ends = time.Now(), time.Time{}
	w.lookAt = in.looked.Add(pause)
}

// due returns how long w may sleep: every is how often the first of a room looks.
func (b *waitlist) due(w *waiter, every time.Duration) (d time.Duration, forever bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := w.lookAt
	if in := b.keys[w.key]; in.waiters[0] == w {
		for _, t := range []time.Time{in.looked.Add(every), in.ends} {
			if !t.IsZero() && (at.IsZero() || t.Before(at)) {
				at = t
			}
		}
	}
	return time.Until(at), at.IsZero()
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
