package redlatch

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/handoff"
	"github.com/redlatch/redlatch/internal/line"
)

const (
	// turnLasts and turnShare bound the age at which a turn may still pass the lock on: a time, and a part of the TTL.
	turnLasts = 5 * time.Millisecond
	turnShare = 100

	// mostPasses is how often a turn may pass the lock on: a tick has that many fences more than one.
	mostPasses = fencesOfTick - 1
)

// lines has the lines of one Locker.
type lines struct {
	mu      sync.Mutex            // guards the fields below, all lines, and the requests in them
	waiting map[*waiters]struct{} // those that use the subscription
	tokens  map[string]*lease     // that Redis may hand a lock to: of lines that queue, and given up
	givenUp []*lease              // of tokens, those that were given up, the oldest first
	resting map[string]time.Time  // keys that others want, and that this process does not ask for until then
}

// waiters is a line: the callers of one Locker that wait for one key. It asks Redis with one token, and has at most one acquire
// under way. Both belong to the line and end with no caller's ctx. The first caller of an idle line sends the first acquire.
// Later ones are sent by a timer. If everybody has left, the outcome of the acquire serves whoever has come meanwhile, or is
// undone.
//
// When Redis grants the key to the line, a turn begins. Unlock then passes the lock on to the next in line. The release
// that ends the turn puts the entry of the line into the queue of Redis, if somebody is left.
type waiters struct {
	line.Line[*request]
	engine *engine
	r      *request // of the first caller. All have its key, its place in Redis and its options

	attempt  *lease                    // the lease to come, whose token asks; nil: none yet
	handed   *handoff.Grant            // of that token, came while an acquire was under way
	watch    handoff.Watch             // of the entry of that token
	looks    int                       // with that entry
	polls    int                       // looks in a row at the intervals of WithPollInterval; 0: the line does not poll
	filled   time.Time                 // since when somebody is in line
	tries    int                       // attempts since the last grant
	asked    int                       // attempts in all
	last     error                     // the outcome of the newest one
	heard    time.Time                 // when that came
	asking   bool                      // an acquire is under way, or an outcome is being handled
	ask      ask                       // that acquire
	outcome  func(acquireReply, error) // handles its outcome: the method heardOf, kept to save an allocation
	pace     pace                      // of a line that polls
	releases int                       // under way that end a turn
	lease    *lease                    // that the process holds; nil with a semaphore
	joined   time.Time                 // when the line began to use the subscription; zero: it does not
	next     time.Time                 // when to ask; zero: at once
	hasten   bool                      // ask at once when the acquire or the release under way has ended
	timer    *time.Timer               // fires when due; nil: not used yet
	due      time.Time
}

// An ask is an acquire of a line.
type ask struct {
	by     *request     // the first in line then
	params *leaseParams // nil: none was made
	at     clock.Instant
}

// spare has lines that can be used again, so that a free key does not need a new one.
var spare = sync.Pool{New: func() any { return new(waiters) }}

// reset makes w a line of the callers of e with the options of r.
func (w *waiters) reset(e *engine, r *request) {
	outcome := w.outcome
	if outcome == nil {
		outcome = w.heardOf
	}
	*w = waiters{engine: e, r: r, outcome: outcome}
}

// news is the first refusal of a call that waits.
type news struct {
	err      error
	holder   *lease // in this process, which knows more
	attempts int
}

// lock waits in line for the key of r.
func (e *engine) lock(ctx context.Context, r *request) (*Lock, error) {
	if e.lines.clear(e, r) {
		lock, err := e.try(ctx, r)
		e.observe(e.now().Since(r.started), err)
		if !errors.Is(err, ErrNotAcquired) {
			return lock, err
		}
		r.refusal = err
		r.waiting(e, err)
	}
	r.ctx = ctx
	w, asks := e.lines.join(ctx, e, r)
	if asks {
		w.send(r.started) //nolint:contextcheck // the subscription outlives its callers
	}
	waiting := true
	defer func() {
		if waiting { // a hook has panicked
			if lock, _ := e.leave(ctx, w, r); lock != nil {
				_ = lock.Unlock(ctx)
			}
		}
	}()
	for {
		select {
		case n := <-r.news:
			n.report(e, r)
		case <-r.served:
			select {
			case n := <-r.news:
				n.report(e, r)
			default:
			}
			waiting = false
			e.served.Put(r.served)
			return r.result()
		case <-ctx.Done():
			waiting = false
			return e.leave(ctx, w, r)
		}
	}
}

// report calls Hooks.Waiting of r.
func (n news) report(e *engine, r *request) {
	if n.holder != nil {
		n.err = n.holder.refusal()
	}
	r.after(n.attempts).waiting(e, n.err)
}

// clear reports whether r makes its first attempt by itself: the key may have several holders, no line waits for it, and the
// process does not leave it to others.
func (l *lines) clear(e *engine, r *request) bool {
	if !e.strategy.habits().shares {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return e.byKey[r.place.key] == nil && l.resting[r.place.key].IsZero()
}

// join adds r to the line of its key. If the line was idle, the caller must ask, unless an attempt of its own was refused.
func (l *lines) join(ctx context.Context, e *engine, r *request) (w *waiters, asks bool) {
	key := r.place.key
	r.spot.Of = r
	if r.served, _ = e.served.Get().(chan struct{}); r.served == nil {
		r.served = make(chan struct{}, 1)
	}
	r.deadline, _ = ctx.Deadline()
	r.refused, r.told = r.refusal != nil, r.refusal != nil
	if r.cfg.hooks.Waiting != nil {
		r.news = make(chan news, 1)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	w = e.byKey[key]
	if w == nil {
		w = spare.Get().(*waiters)
		w.reset(e, r)
		e.byKey[key] = w
	}
	if w.Len() == 0 {
		w.filled = r.started.Mono
	}
	r.joined = w.asked - r.attempts
	w.Join(&r.spot)
	if !r.refused && w.Len() == 1 && !w.asking && w.releases == 0 && w.lease == nil && (len(l.resting) == 0 || l.resting[key].IsZero()) {
		w.asking, w.ask.at = true, r.started
		return w, true
	}
	w.subscribeLocked() //nolint:contextcheck // the subscription outlives its callers
	if w.last == nil && r.refused {
		w.heardLocked(r.refusal)
		if w.queues() {
			w.next = w.queueAtLocked()
		}
	}
	w.planLocked()
	switch {
	case r.told:
	case w.lease != nil:
		w.heardLocked(&HeldError{Owner: w.r.cfg.owner, err: ErrNotAcquired})
		r.refused = true
		r.tellLocked(w, w.last, w.lease)
	case errors.Is(w.last, ErrNotAcquired):
		r.tellLocked(w, w.last, nil)
	}
	return w, false
}

// tellLocked tells r of its first refusal.
func (r *request) tellLocked(w *waiters, err error, holder *lease) {
	if !r.told && r.news != nil {
		r.news <- news{err, holder, w.asked - r.joined}
	}
	r.told = true
}

// heardLocked notes the newest outcome.
func (w *waiters) heardLocked(outcome error) { w.last, w.heard = outcome, time.Now() }

// leave ends the wait of r, whose ctx has ended, unless it was served just now.
func (e *engine) leave(ctx context.Context, w *waiters, r *request) (*Lock, error) {
	l := &e.lines
	l.mu.Lock()
	if !w.Leave(&r.spot) {
		l.mu.Unlock()
		return r.result() // r.served is not used again
	}
	r.attempts = w.asked - r.joined
	last, silence := w.last, time.Duration(0)
	if w.asking {
		silence = max(time.Since(w.ask.at.Mono), 1)
	}
	old := time.Since(w.heard) > r.cfg.timeout() && silence > r.cfg.timeout()*3/4
	undo := w.settleLocked()
	l.mu.Unlock()
	if silence > 0 && (last == nil || old) {
		last = e.strategy.trouble("acquire", &target{place: r.place}, silence)
	}
	undo.undo(ctx, nil, func() {})
	return nil, &gaveUp{ctxError(ctx), last}
}

// settleLocked plans the next acquire. If everybody has left, it gives the token up, and returns it if it must be undone.
func (w *waiters) settleLocked() (undo *lease) {
	if w.Len() > 0 {
		w.planLocked()
		return nil
	}
	if w.timer != nil {
		w.timer.Stop()
		w.due = time.Time{}
	}
	if w.asking || w.releases > 0 {
		return nil
	}
	l := &w.engine.lines
	undo = w.giveUpLocked()
	if !w.joined.IsZero() {
		w.joined = time.Time{}
		delete(l.waiting, w)
		w.engine.channel.Leave()
	}
	if byKey := w.engine.byKey; w.lease == nil && byKey[w.r.place.key] == w {
		delete(byKey, w.r.place.key)
		if w.timer == nil && !w.engine.strategy.habits().shares { // nothing refers to it
			w.reset(nil, nil)
			spare.Put(w)
		}
	}
	return undo
}

// dropLocked settles, and gives the token up in the background.
func (w *waiters) dropLocked() {
	if undo := w.settleLocked(); undo != nil {
		time.AfterFunc(0, undo.undoAlone) // posts, and ends
	}
}

// planLocked sets the timer for the next acquire.
func (w *waiters) planLocked() {
	if w.asking || w.releases > 0 || w.lease != nil || w.Len() == 0 {
		return // whoever ends that plans again
	}
	due := w.next
	if rest := w.engine.lines.resting[w.r.place.key]; rest.After(due) {
		due = rest
		if end := w.Head().Of.deadline; !end.IsZero() { // leave time for its own attempts
			if at := time.Now().Add(time.Until(end) / 4); at.Before(due) {
				due = at
			}
		}
	}
	if w.tries > 0 && w.overBy(due.Add(min(time.Duration(w.engine.commandTime.Load()), w.r.cfg.longest/4))) {
		return // nobody would still be there for the answer
	}
	switch {
	case w.timer == nil:
		w.timer = time.AfterFunc(time.Until(due), w.fire)
	case !due.Equal(w.due) || w.due.IsZero():
		w.timer.Reset(time.Until(due))
	default:
		return
	}
	w.due = due
}

// fire runs when the timer fires. It asks if that is due.
func (w *waiters) fire() {
	l := &w.engine.lines
	l.mu.Lock()
	if w.asking || w.releases > 0 || w.lease != nil || w.Len() == 0 {
		w.due = time.Time{}
		l.mu.Unlock()
		return
	}
	if d := time.Until(w.due); d > 0 {
		w.timer.Reset(d)
		l.mu.Unlock()
		return
	}
	w.asking, w.due = true, time.Time{}
	w.ask.at = w.engine.now()
	l.mu.Unlock()
	w.send(w.ask.at)
}
