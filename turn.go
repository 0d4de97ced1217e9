package redlatch

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/handoff"
)

// A turn begins when Redis grants the key to a line: by the reply to an acquire, by a message, or by the reply to the
// release that ended the turn before. It ends when its lease does, or when Unlock cannot pass the lock on.

// granted begins a turn with a lease that began at start, and serves the head of the line. w.asking is set, so nothing
// else changes the token. got is the reply to an acquire; without one, the token was handed the lock. granted reports false
// if nothing of the lease is left now.
func (w *waiters) granted(ctx context.Context, start, now clock.Instant, g handoff.Grant, got *acquireReply) bool {
	cfg, l := w.r.cfg, &w.engine.lines
	length := clock.Validity(w.r.ttl(), cfg.drift)
	l.mu.Lock()
	if old := w.lease; old != nil { // the key was lost
		l.mu.Unlock()
		old.lose(errDeleted)
		now = w.engine.now() // a hook has run
		l.mu.Lock()
		w.lease = nil
	}
	if now.Since(start) >= length {
		l.mu.Unlock()
		return false
	}
	a := w.attempt
	if got != nil {
		a.recheckAt = got.recheckAfter
		a.state.again.Store(got.alreadyHeld)
		if got.alreadyHeld {
			w.foundLocked()
		}
	}
	a.sent = true
	var undo *lease
	var told []*request
	if w.Len() > 0 {
		passes := min(g.More, mostPasses)
		if !w.passable() {
			passes = 0
		}
		turn, head := w.Begin(passes)
		a.fence, a.turn, a.hooks = g.Fence, turn, &head.Of.cfg.hooks
		if got != nil && !a.carried && w.handed == nil {
			a.entry = "" // no release has queued it, nor will one
		}
		switch {
		case !w.shared:
			a.line = nil
		case !w.engine.strategy.habits().shares:
			w.lease = a
		}
		lock := a.begin(start, now, length)
		if a.carried { // the release that queues it is under way, or has an unknown outcome
			a.ended = now.Mono
		} else {
			delete(l.tokens, a.params.token)
		}
		w.attempt, w.handed, w.watch, w.tries = nil, nil, w.watch.Next(got != nil && !got.alreadyHeld), 0
		w.next, w.hasten = time.Time{}, false
		w.pace.granted()
		head.Of.serveLocked(w, lock, nil)
		if w.lease == a {
			told = w.refusedLocked(&HeldError{Owner: cfg.owner, err: ErrNotAcquired}, w.asked+1)
		}
	} else { // everybody has left
		undo = w.giveUpLocked()
	}
	w.quietLocked()
	w.settleLocked()
	l.mu.Unlock()
	if told != nil {
		a.engine.tell(told, a.refusal())
	}
	switch {
	case undo == nil:
	case got == nil:
		time.AfterFunc(0, undo.undoAlone) // a goroutine that ends with the op timeout
	default:
		undo.undo(ctx)
	}
	return true
}

// foundLocked notes that an acquire found the key held by the token. If it was handed over and no message says so soon,
// the subscription is replaced.
func (w *waiters) foundLocked() {
	a, l := w.attempt, &w.engine.lines
	if a.entry == "" || a.announced || w.handed != nil || a.made.Polls {
		return
	}
	token, channel := a.params.token, w.engine.channel
	l.missing = token
	time.AfterFunc(handoff.MessageDelay, func() {
		l.mu.Lock()
		still := l.missing == token
		l.mu.Unlock()
		if still {
			channel.Replace()
		}
	})
}

// deliver begins the turn that g grants. If its token was given up, the lock is given back.
func (e *engine) deliver(g handoff.Grant) {
	g.Arrived = e.now()
	l := &e.lines
	l.mu.Lock()
	if l.missing == g.Token {
		l.missing = ""
	}
	a := l.tokens[g.Token]
	take := false
	switch {
	case a == nil:
	case a.state.settled():
		go a.undo(context.Background()) // ends with the op timeout
	case a.line.attempt == a: // else it was granted
		a.announced = true
		if !a.carried { // else this process has handed the lock on
			a.line.watch.Announced()
		}
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
		w.asking, w.since = true, g.Arrived.Mono
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
	if w.granted(context.Background(), start, g.Arrived, g, nil) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	w.quietLocked()
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
	queued := w.attempt != nil && w.attempt.entry != ""
	if queued && (w.attempt.carried || e.strategy.habits().shares) {
		// Another release queues the line. Or an acquire has: then the release of somebody else's permit may grant it, and
		// this one could queue it again behind its own release.
		return nil
	}
	s := &succession{line: w, blind: !e.strategy.habits().tells}
	w.releases++
	if keeps || !w.queues() {
		return s
	}
	state := e.channel.State()
	switch {
	case !queued && (!state.Ready && !state.Polls || w.hurriedLocked()):
		return s
	case w.asking: // the release might queue a token that was granted meanwhile
		w.hasten, s.blind = true, false
		return s
	case !queued:
		if _, err := w.attemptLocked(); err != nil {
			return s // the line asks
		}
		w.enterLocked(state)
	}
	w.attempt.carried, w.attempt.sent = true, true
	s.attempt, s.waited, s.asked = w.attempt, w.waitedLocked(), e.now()
	return s
}

// ended handles the outcome of the release of s. If that did not queue the line or hand it the lock, the line asks.
func (s *succession) ended(reply releaseReply, err error) {
	w, a, e := s.line, s.attempt, s.line.engine
	l, cfg := &e.lines, w.r.cfg
	var pause time.Duration
	if a != nil || s.blind && cfg.backoff != nil {
		pause = w.backoff(1, 0, func() { w.releases-- })
	}
	l.mu.Lock()
	w.releases--
	w.next = time.Time{}
	take := false
	g := handoff.Grant{Fence: reply.fence, More: reply.more, At: reply.at, Arrived: e.now()}
	switch {
	case a == nil:
		if s.blind && cfg.backoff == nil {
			pause = w.pace.rest/2 + rand.N(w.pace.rest/2+1)
		}
		w.next = time.Now().Add(pause)
	case err != nil, reply.at == 0: // the release may still queue the entry, or did so when it was sent before
		a.carried = !errors.Is(err, ErrLost)
	case w.attempt != a: // a message came first
		a.carried = false
		delete(l.tokens, a.params.token)
	default:
		a.carried = false
		w.watch.Told(s.asked, reply.at)
		switch {
		case reply.handed:
			take = w.handLocked(g)
		case a.made.Polls || w.watch.Polls() || reply.wanted: // it gets no message, or nobody does
			w.watch.Poll()
			w.next = time.Now().Add(pause)
		default:
			w.next = time.Now().Add(handoff.LookEvery + rand.N(handoff.LookEvery/4))
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
func (l *lines) holder(key string) *lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w := l.byKey[key]; w != nil {
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

// rest has this process leave a key alone for a while: others want it, and would never find it free otherwise.
func (l *lines) rest(key string) {
	d := longestPause/2 + rand.N(longestPause/2)
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
