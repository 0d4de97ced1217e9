package redlatch

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/handoff"
)

// A turn begins when Redis grants the key to a line: by the reply to an acquire, by a message, or by the reply to the
// release that ended the turn before. It ends when its lease does, or when Unlock cannot pass the lock on.

// granted begins a turn with a lease that began at start, and serves the head of the line. w.asking is set, so nothing
// else changes the token. got is the reply to an acquire; without one, the token was handed the lock, for a claim. granted
// reports false if nothing of the lease is left now.
func (w *waiters) granted(ctx context.Context, start, now clock.Instant, fence uint64, got *acquireReply) bool {
	cfg, l := w.r.cfg, &w.engine.lines
	ttl := w.r.ttl()
	if got == nil {
		ttl = w.attempt.claim
	}
	length := clock.Validity(ttl, cfg.drift)
	l.mu.Lock()
	if now.Since(start) >= length {
		l.mu.Unlock()
		return false
	}
	a := w.attempt
	if got != nil {
		a.recheckAt = got.recheckAfter
		a.answered(*got)
	}
	a.sent = true
	var undo *lease
	if w.Len() > 0 {
		passes := 0
		if w.passable() {
			passes = mostPasses
		}
		turn, head := w.Begin(passes)
		a.fence, a.turn, a.hooks = fence, turn, &head.Of.cfg.hooks
		if !w.engine.strategy.habits().shares {
			w.lease = a
		}
		lock := a.begin(start, now, length)
		delete(l.tokens, a.params.token)
		w.attempt, w.handed, w.watch, w.tries, w.polls = nil, nil, handoff.Watch{}, 0, 0
		w.next, w.hasten = time.Time{}, false
		w.pace.granted(cfg)
		head.Of.serveLocked(w, lock, nil)
		if w.lease == a {
			w.refusedLocked(&HeldError{Owner: cfg.owner, err: ErrNotAcquired}, w.asked+1, a)
		}
	} else { // everybody has left
		undo = w.giveUpLocked()
	}
	w.asking = false
	w.settleLocked()
	l.mu.Unlock()
	undo.undo(ctx, nil, func() {})
	return true
}

// deliver begins the turn that g grants. If its token was given up, the lock is given back.
func (e *engine) deliver(g handoff.Grant) {
	g.Arrived = e.now()
	l := &e.lines
	l.mu.Lock()
	a := l.tokens[g.Token]
	take := false
	switch {
	case a == nil:
	case !a.ended.IsZero():
		go a.undoAlone() // posts, and ends
	case a.line.attempt == a: // else it was granted
		take = a.line.handLocked(g)
	}
	l.mu.Unlock()
	if take {
		a.line.take(g)
	}
}

// handLocked notes that the token was handed the lock. If it reports true, the caller must call take.
func (w *waiters) handLocked(g handoff.Grant) bool {
	switch {
	case w.attempt.params.replicas > 0: // an acquire asks the replicas
		w.askNowLocked()
	case w.asking: // the reply says more
		w.handed = &g
	default:
		w.asking, w.ask.at = true, g.Arrived
		return true
	}
	return false
}

// take begins the turn of a token that was handed the lock. If nothing of the lease is left, the line asks: the token may
// still hold the key.
func (w *waiters) take(g handoff.Grant) {
	l := &w.engine.lines
	l.mu.Lock()
	start := w.watch.Started(g, w.r.cfg.drift)
	l.mu.Unlock()
	if w.granted(context.Background(), start, g.Arrived, g.Tick*fencesOfTick, nil) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	w.asking = false
	w.next = time.Time{}
	w.dropLocked()
}

// pass passes the lock on now to the next in line that the turn may serve, if there is one. l.mu is held.
func (w *waiters) pass(l *lease, now clock.Instant) bool {
	w.engine.lines.mu.Lock()
	defer w.engine.lines.mu.Unlock()
	next := w.Serve(&l.turn)
	if next == nil {
		return false
	}
	l.handle++
	if l.fence > 0 {
		l.fence++
	}
	l.since, l.hooks = now, &next.Of.cfg.hooks
	l.strong = &Lock{lease: l, number: l.handle, fence: l.fence}
	next.Of.serveLocked(w, l.strong, nil)
	w.dropLocked()
	return true
}

// A succession is what the release that ends a turn does for the next one of the line.
type succession struct {
	line    *waiters
	attempt *lease // whose entry is queued; nil: none
	blind   bool   // the line cannot know whether others want the key, unless it is queued
	waited  time.Duration
	asked   clock.Instant // before the release is sent
}

// ending ends the turn of l, whose release is about to be sent, unless it keeps the key. l.mu is held. It returns nil if
// nobody waits. Until ended, the line sends no acquire.
func (w *waiters) ending(l *lease, keeps bool) *succession {
	e := w.engine
	e.lines.mu.Lock()
	defer e.lines.mu.Unlock()
	if w.lease == l {
		w.lease = nil
	}
	if w.Len() == 0 {
		w.dropLocked()
		return nil
	}
	if w.attempt != nil && w.attempt.entry != "" { // it is in the queue, for another permit
		return nil
	}
	s := &succession{line: w, blind: !e.strategy.habits().tells && !w.queues()}
	w.releases++
	switch {
	case keeps, !w.queues(), w.hurriedLocked():
		return s
	case w.asking: // the release might queue a token that was granted meanwhile
		w.hasten = true
		return s
	}
	if _, err := w.attemptLocked(); err != nil {
		return s // the line asks
	}
	w.enterLocked()
	w.attempt.sent = true
	s.attempt, s.waited, s.asked = w.attempt, w.waitedLocked(), e.now()
	return s
}

// ended handles the outcome of the release of s. If that did not queue the line or hand it the lock, the line asks.
func (s *succession) ended(reply releaseReply, err error) {
	w, a, e := s.line, s.attempt, s.line.engine
	l := &e.lines
	l.mu.Lock()
	w.releases--
	w.next = time.Time{}
	take := false
	g := handoff.Grant{Tick: reply.tick, At: reply.at, Arrived: e.now()}
	switch {
	case a == nil:
		if s.blind {
			w.next = time.Now().Add(w.pace.rest - rand.N(w.pace.rest/2+1))
		}
	case err != nil, reply.at == 0, w.attempt != a: // the line asks, or a message came first
	default:
		w.watch.Told(s.asked, reply.at)
		switch {
		case reply.tick > 0:
			take = w.handLocked(g)
		case e.channel.Comes():
			w.next = time.Now().Add(handoff.Pause(false, 0, 0))
		default:
			w.polls++
			w.next = time.Now().Add(w.r.cfg.pause(w.polls, 0))
		}
	}
	if w.hasten && w.releases == 0 && !w.asking {
		w.hasten, w.next = false, time.Time{}
	}
	if !take {
		w.dropLocked()
	}
	l.mu.Unlock()
	if take {
		w.take(g)
	}
}

// holder returns the lease of a line on key, or nil.
func (e *engine) holder(key string) *lease {
	e.lines.mu.Lock()
	defer e.lines.mu.Unlock()
	if w := e.byKey[key]; w != nil {
		return w.lease
	}
	return nil
}

// over ends the turn of l, whose lease was lost.
func (w *waiters) over(l *lease) {
	w.engine.lines.mu.Lock()
	defer w.engine.lines.mu.Unlock()
	if w.lease == l {
		w.lease = nil
		w.askNowLocked()
	}
	w.dropLocked()
}

// rest has this process leave a key alone for a while, up to longest: others want it, and would never find it free otherwise.
func (l *lines) rest(key string, longest time.Duration) {
	d := longest - rand.N(longest/2+1)
	until := time.Now().Add(d)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.resting == nil {
		l.resting = make(map[string]time.Time)
	}
	l.resting[key] = until
	time.AfterFunc(d, func() { // it ends with the rest
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.resting[key].Equal(until) {
			delete(l.resting, key)
		}
	})
}
