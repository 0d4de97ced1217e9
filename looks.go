package redlatch

import (
	"math/rand/v2"
	"slices"
	"time"
)

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

// look has the first of every room look now: messages may have been lost, or Redis. So do those who lost their
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
func (b *waitlist) onReply(w *waiter, asked instant, got acquireReply, refusal error) {
	polling := b.subscription.isDegraded()
	b.mu.Lock()
	defer b.mu.Unlock()
	in := b.keys[w.key]
	in.looked, in.ends, in.last, w.lookAt = time.Now(), time.Time{}, refusal, time.Time{}
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
		handed := other.token == got.holder || slices.Contains(got.handed, other.token)
		switch {
		case other == w:
		case handed && polling:
			other.lookSoon(0)
		case handed: // its message is late, or lost
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
	case w.under != "" && w.under != got.holder && w.polls == 0 && !got.shared:
		w.polls = 1
	}
	w.under = got.holder
}

// onError notes that a look of w failed: it looks again after pause.
func (b *waitlist) onError(w *waiter, err error, pause time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	in := b.keys[w.key]
	in.looked, in.ends, in.last = time.Now(), time.Time{}, err
	w.lookAt = in.looked.Add(pause)
}

// last returns what the last look met with of all waiters for the key of w.
func (b *waitlist) last(w *waiter) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.keys[w.key].last
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
