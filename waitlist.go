package redlatch

import (
	"context"
	crand "crypto/rand"
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
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
}

// departedFor is how long an entry is remembered, roughly, whose waiter could not take it out of the queue, and
// mostDeparted how many are.
const (
	departedFor  = 10 * time.Minute
	mostDeparted = 10_000
)

// A departure is an attempt that was given up, until Redis has confirmed that it left the queue.
type departure struct {
	attempt *attempt
	at      time.Time
}

// A waitlist is where all waiters of one Locker sit.
type waitlist struct {
	engine       *engine
	subscription *subscription

	mu       sync.Mutex // guards the fields below, and what is in them
	keys     map[string]*keyQueue
	departed map[string]departure // by entry: they may be handed locks that nobody wants
	swept    time.Time            // when the oldest of them were forgotten
	missing  string               // the entry of a waiter that has found its lock before the message came
}

func newWaitlist(e *engine, s *subscription) *waitlist {
	b := &waitlist{engine: e, subscription: s, keys: make(map[string]*keyQueue), departed: make(map[string]departure)}
	s.deliver = b.deliver
	s.confirmed = b.look
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
	w := &waiter{
		key: p.key, token: p.token, handed: make(chan delivery, 1), wake: make(chan struct{}, 1),
		entry: entry(p.ttl, polls, b.subscription.channel, placeNumber(), p.token),
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	in := b.keys[w.key]
	if in == nil {
		in = &keyQueue{asked: asked, looked: time.Now()}
		b.keys[w.key] = in
	}
	in.waiters = append(in.waiters, w)
	return w
}

// placeNumber returns a number that nobody can guess.
func placeNumber() uint64 {
	var b [8]byte
	_, _ = crand.Read(b[:]) // it never fails
	return binary.NativeEndian.Uint64(b[:])
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
	if d, ok := b.departed[h.entry]; ok {
		delete(b.departed, h.entry)
		go d.attempt.leaveQueue(context.Background(), h.entry) // ends with its release
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

// depart remembers that a is about to take entry out of the queue.
func (b *waitlist) depart(a *attempt, entry string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if now.Sub(b.swept) > departedFor/10 {
		b.swept = now
		maps.DeleteFunc(b.departed, func(_ string, d departure) bool { return now.Sub(d.at) > departedFor })
	}
	if len(b.departed) < mostDeparted {
		b.departed[entry] = departure{a, now}
	}
}

// gone forgets an entry that Redis has confirmed to be out of the queue.
func (b *waitlist) gone(entry string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.departed, entry)
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
	time.AfterFunc(messageDelay, func() {
		b.mu.Lock()
		still := b.missing == w.entry
		b.mu.Unlock()
		if still {
			b.subscription.replace()
		}
	})
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
	polling := b.subscription.isDegraded()
	b.mu.Lock()
	defer b.mu.Unlock()
	in := b.keys[w.key]
	in.looked, in.ends, w.lookAt = time.Now(), time.Time{}, time.Time{}
	if got.left > 0 {
		in.ends = in.looked.Add(got.left + time.Millisecond)
	}
	if got.at == 0 {
		return
	}
	if in.told == 0 || asked.mono.After(in.asked.mono) {
		in.asked, in.told = asked, got.at
	}
	if in.holder == got.holder {
		in.still++
	} else {
		in.holder, in.still = got.holder, 0
	}
	b.firstLocked(w, got)
	if !got.first && got.left > 0 { // the first of all goes first
		in.ends = in.looked.Add(max(got.left+messageDelay, lookOften))
	}
	for _, other := range in.waiters {
		switch {
		case other == w:
		case other.token == got.holder && polling:
			other.lookSoon(0)
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

// firstLocked notes whether w is the first of the queue. Where the lock has changed hands past it, others do
// not hand it on, and w polls from then on.
func (b *waitlist) firstLocked(w *waiter, got acquireReply) {
	switch {
	case !got.first:
		w.under = ""
		return
	case w.under == "" && w.polls > 0: // its turn is near
		w.polls = 1
	case w.under != "" && w.under != got.holder && w.polls == 0:
		w.polls = 1
	}
	w.under = got.holder
}

// Nobody depends on a message, so processes look: the first of the queue about every lookEvery, and more often
// where the holder may be one that does not hand on. Others look at longer intervals, up to lookRarely, while
// the key stays with one holder.
const (
	lookEvery  = time.Second
	lookOften  = lookEvery / 4
	lookRarely = 4 * time.Second
)

// interval returns how long after a look of w its process looks again.
func (b *waitlist) interval(w *waiter, cfg *config, got acquireReply) time.Duration {
	polling := b.subscription.isDegraded()
	b.mu.Lock()
	defer b.mu.Unlock()
	if polling && w.polls == 0 {
		w.polls = 1
	}
	var d time.Duration
	switch {
	case w.polls > 0:
		w.polls++
		return cfg.pause(w.polls-1, got.left)
	case got.first && !minted(got.holder):
		d = lookOften
	case got.first:
		d = lookEvery
	default:
		d = min(lookEvery<<min(b.keys[w.key].still, 2), lookRarely)
	}
	return d + rand.N(d/4)
}

// minted reports whether token looks like one of newAttempt's, whose holder hands the lock on.
func minted(token string) bool {
	_, err := uuid.Parse(token)
	return err == nil && len(token) == 36
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
