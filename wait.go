package redlatch

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/handoff"
	"github.com/redlatch/redlatch/internal/line"
	"github.com/redlatch/redlatch/internal/node"
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
// Later ones are sent by a timer.
//
// When Redis grants the key to the line, a turn begins. Unlock then passes the lock on to the next in line. The release
// that ends the turn puts the entry of the line into the queue of Redis, if somebody is left.
type waiters struct {
	line.Line[*request]
	engine *engine
	r      *request // of the first caller. All have its key, its place in Redis and its options

	attempt  *lease             // the lease to come, whose token asks; nil: none yet
	handed   *handoff.Grant     // of that token, came while an acquire was under way
	watch    handoff.Watch      // of the entry of that token
	looks    int                // with that entry
	polls    int                // looks in a row at the intervals of WithPollInterval; 0: the line does not poll
	filled   time.Time          // since when somebody is in line
	tries    int                // attempts since the last grant
	asked    int                // attempts in all
	last     error              // the outcome of the newest one
	asking   bool               // an acquire is under way, or an outcome is being handled
	since    time.Time          // when the newest acquire was sent
	cancel   context.CancelFunc // ends it; nil if it has the ctx of a caller
	heard    chan struct{}      // closed when its outcome was handled; nil if it has the ctx of a caller
	pace     pace               // of a line that polls
	releases int                // under way that end a turn
	lease    *lease             // that the process holds; nil with a semaphore
	joined   time.Time          // when the line began to use the subscription; zero: it does not
	next     time.Time          // when to ask; zero: at once
	hasten   bool               // ask at once when the acquire or the release under way has ended
	timer    *time.Timer        // fires when due; nil: not used yet
	due      time.Time
}

// spare has lines that can be used again, so that a free key does not need a new one.
var spare = sync.Pool{New: func() any { return new(waiters) }}

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
	attempts := r.attempts
	w, refusal, asks := e.lines.join(ctx, e, r)
	waiting := true
	defer func() { //nolint:contextcheck // the ctx of the caller may last
		if waiting { // a hook has panicked
			e.abandon(w, r)
		}
	}()
	if refusal != nil {
		r.after(attempts).waiting(e, refusal())
	}
	if asks {
		if err := w.ask(ctx, r.started); err != nil {
			waiting = false
			return e.leave(ctx, w, r)
		}
	}
	e.lines.mu.Lock()
	over := r.done()
	if !over && r.served == nil {
		r.served = make(chan struct{})
	}
	e.lines.mu.Unlock()
	if !over {
		select {
		case <-r.served:
		case <-ctx.Done():
			waiting = false
			return e.leave(ctx, w, r)
		}
	}
	waiting = false
	return r.result()
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
// If the key is known to be held, refusal returns the error that says so.
func (l *lines) join(ctx context.Context, e *engine, r *request) (w *waiters, refusal func() error, asks bool) {
	key := r.place.key
	r.spot.Of = r
	r.deadline, _ = ctx.Deadline()
	l.mu.Lock()
	defer l.mu.Unlock()
	w = e.byKey[key]
	if w == nil {
		w = spare.Get().(*waiters)
		*w = waiters{engine: e, r: r}
		e.byKey[key] = w
	}
	if w.Len() == 0 {
		w.filled = r.started.Mono
	}
	r.joined = w.asked - r.attempts
	w.Join(&r.spot)
	r.refused, r.told = r.refusal != nil, r.refusal != nil
	if !r.refused && w.Len() == 1 && !w.asking && w.releases == 0 && w.lease == nil && (len(l.resting) == 0 || l.resting[key].IsZero()) {
		w.asking, w.since = true, r.started.Mono
		return w, nil, true
	}
	r.served = make(chan struct{})
	w.subscribeLocked() //nolint:contextcheck // the subscription outlives its callers
	if w.last == nil && r.refused {
		w.last = r.refusal
		if w.queues() {
			w.next = w.queueAtLocked()
		}
	}
	w.planLocked()
	last := w.last
	switch {
	case r.told:
	case w.lease != nil:
		r.refused, r.told = true, true
		w.last = &HeldError{Owner: w.r.cfg.owner, err: ErrNotAcquired}
		return w, w.lease.refusal, false
	case errors.Is(last, ErrNotAcquired):
		r.told = true
		return w, func() error { return last }, false
	}
	return w, nil, false
}

// leave ends the wait of r, whose ctx has ended, unless it was served just now.
func (e *engine) leave(ctx context.Context, w *waiters, r *request) (*Lock, error) {
	l := &e.lines
	l.mu.Lock()
	if !w.Leave(&r.spot) {
		l.mu.Unlock()
		return r.result()
	}
	r.attempts = w.asked - r.joined
	if w.asking && w.cancel != nil && w.Len() == 0 {
		heard := w.heard
		w.cancel() // the reason is what its node says
		l.mu.Unlock()
		<-heard
		l.mu.Lock()
	}
	last := w.last
	slow := time.Since(w.since) > r.cfg.timeout()/4
	if w.asking && (last == nil || slow && errors.Is(last, ErrNotAcquired)) {
		last = &node.NoReply{Within: time.Since(w.since).Round(time.Millisecond)}
	}
	undo := w.settleLocked()
	l.mu.Unlock()
	if undo != nil {
		undo.undo(ctx)
	}
	return nil, &gaveUp{node.CtxError(ctx), last}
}

// abandon takes r, whose caller is gone, out of the line, and gives back a lock that it was served with.
func (e *engine) abandon(w *waiters, r *request) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if lock, _ := e.leave(ctx, w, r); lock != nil {
		_ = lock.Unlock(ctx)
	}
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
		if w.cancel != nil {
			w.cancel()
		}
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
			*w = waiters{}
			spare.Put(w)
		}
	}
	return undo
}

// dropLocked settles, and gives the token up in the background.
func (w *waiters) dropLocked() {
	if undo := w.settleLocked(); undo != nil {
		time.AfterFunc(0, undo.undoAlone) // a goroutine that ends with the op timeout
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
	ctx, cancel := context.WithCancel(context.Background())
	w.asking, w.since, w.cancel, w.heard, w.due = true, time.Now(), cancel, make(chan struct{}), time.Time{}
	l.mu.Unlock()
	_ = w.ask(ctx, w.engine.now()) // its callers leave by themselves
	cancel()
}
