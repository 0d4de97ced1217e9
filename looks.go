package redlatch

import (
	"math/rand/v2"
	"slices"
	"time"
)

// No waiter depends on a message, so processes look. The first of the queue looks about every lookEvery, and every
// lookOften if the holder may be a client that does not hand the lock on. Others look less often, down to lookRarely,
// while the holder stays the same.
const (
	lookEvery  = time.Second
	lookOften  = lookEvery / 4
	lookRarely = 4 * time.Second
)

// interval returns the time until the next look after a look of w.
func (l *waitlist) interval(w *waiter, cfg *config, got acquireReply) time.Duration {
	polling := l.subscription.isDegraded()
	l.mu.Lock()
	defer l.mu.Unlock()
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
		d = min(lookEvery<<min(l.keys[w.key].same, 2), lookRarely)
	}
	return d + rand.N(d/4)
}

// look has the first waiter of every key look now, and those whose entries were lost: messages may have been lost, or
// the data of Redis.
func (l *waitlist) look() {
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

// lookSoon has w look after d at the latest. The caller holds waitlist.mu.
func (w *waiter) lookSoon(d time.Duration) {
	at := time.Now().Add(d)
	if w.lookAt.IsZero() || at.Before(w.lookAt) {
		w.lookAt = at
		w.wakeUp()
	}
}

// onReply notes the refusal that a look of w, sent at asked, was answered.
func (l *waitlist) onReply(w *waiter, asked instant, got acquireReply, refusal error) {
	polling := l.subscription.isDegraded()
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.keys[w.key]
	q.looked, q.ends, q.last, w.lookAt = time.Now(), time.Time{}, refusal, time.Time{}
	if got.left > 0 {
		q.ends = q.looked.Add(got.left + time.Millisecond)
	}
	if got.at == 0 {
		return
	}
	if q.redis == 0 || asked.mono.After(q.asked.mono) {
		q.asked, q.redis = asked, got.at
	}
	if q.holder == got.holder {
		q.same++
	} else {
		q.holder, q.same = got.holder, 0
	}
	l.firstLocked(w, got)
	if !got.first && got.left > 0 { // the first of the queue looks before the others
		q.ends = q.looked.Add(max(got.left+messageDelay, lookOften))
	}
	for _, other := range q.waiters {
		handed := other.token == got.holder || slices.Contains(got.handed, other.token)
		switch {
		case other == w:
		case handed && polling:
			other.lookSoon(0)
		case handed: // its message may be late or lost
			other.lookSoon(messageDelay)
		case got.fresh && w.queued && other.queued: // the queue was lost
			other.queued = false
			if l.subscription.isReady() {
				other.lookSoon(0)
			}
		}
	}
	w.queued = true
}

// firstLocked notes whether w is the first of the queue. If the key has changed hands past it, its holders do not
// hand it on, and w polls from then on.
func (l *waitlist) firstLocked(w *waiter, got acquireReply) {
	switch {
	case !got.first:
		w.seen = ""
		return
	case w.seen == "" && w.polls > 0: // it has just become the first
		w.polls = 1
	case w.seen != "" && w.seen != got.holder && w.polls == 0 && !got.shared:
		w.polls = 1
	}
	w.seen = got.holder
}

// onError notes that a look of w failed with err. w looks again after pause.
func (l *waitlist) onError(w *waiter, err error, pause time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.keys[w.key]
	q.looked, q.ends, q.last = time.Now(), time.Time{}, err
	w.lookAt = q.looked.Add(pause)
}

func (l *waitlist) last(w *waiter) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.keys[w.key].last
}

// due returns how long w may sleep. every is the interval of looks, which the first waiter of the process makes.
func (l *waitlist) due(w *waiter, every time.Duration) (d time.Duration, forever bool) {
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
