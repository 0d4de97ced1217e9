package redlatch

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/line"
)

// news is a refusal for a call that waits, after a number of attempts.
type news struct {
	err      error
	attempts int
}

// refusals has room for the newest one.
type refusals chan news

// replace sends n in place of one that was not received.
func (c refusals) replace(n news) {
	for {
		select {
		case c <- n:
			return
		default:
		}
		select {
		case <-c:
		default:
		}
	}
}

// A waiter is a call that waits in line. lines.mu guards what it adds to its request.
type waiter struct {
	request
	caller  line.Caller[*waiter]
	ctx     context.Context //nolint:containedctx // for its values, which travel with what its line asks
	refusal error           // of an attempt that the call made before it joined; nil: there was none
	news    refusals        // has the newest refusal to report; nil: there is no hook
	told    bool            // it knows of a refusal. Only the call uses this
	over    chan struct{}   // closed when it has a lock, or err
	lock    *Lock
	err     error
}

// bounded returns a child of ctx that ends when the call has waited for as long as it may.
func (cfg *config) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	began := cfg.waitBegan
	if began.IsZero() {
		began = time.Now()
	}
	return context.WithDeadlineCause(ctx, began.Add(cfg.maxWait), &waitedError{cfg.maxWait})
}

// lock waits in line for the key of r.
func (e *engine) lock(ctx context.Context, r *waiter) (*Lock, error) {
	if err := e.refuseOwnWait(ctx, &r.request); err != nil {
		return nil, err
	}
	if r.cfg.maxWait > 0 {
		waiting, stop := r.cfg.bounded(ctx)
		defer stop()
		// Another key, or the other side of a migration, may have taken all of it.
		if ctx.Err() == nil && waiting.Err() != nil {
			lock, err := e.try(ctx, &r.request)
			if errors.Is(err, ErrNotAcquired) {
				err = &gaveUp{ctxError(waiting), err}
			}
			return lock, err
		}
		ctx = waiting
	}
	return e.wait(ctx, r)
}

// wait makes a first attempt, and waits in line unless that fails.
func (e *engine) wait(ctx context.Context, r *waiter) (*Lock, error) {
	if lock := e.joinReaders(ctx, &r.request); lock != nil {
		return lock, nil
	}
	if e.triesAlone(&r.request) {
		lock, err := e.try(ctx, &r.request)
		m := e.moment(clock.Now())
		e.lines.locked(func() { e.lines.observeLocked(&m, m.now.Since(r.started), err) })
		switch {
		case err == nil:
			return lock, nil
		case errors.Is(err, ErrNotAcquired):
			r.refusal, r.told = err, true
			r.refused(ctx, e, r.cfg.hooks.Waiting, news{err, r.attempts})
		case opensFirst(err) && ctx.Err() == nil:
			if hook, trouble := e.troubleOf(&r.request, r.attempts, err); hook != nil {
				hook(ctx, trouble)
			}
		case !errors.Is(err, errBehind):
			return lock, err
		}
	}
	w := e.join(ctx, r)
	for {
		select {
		case n := <-r.news:
			e.report(ctx, w, r, n)
		case <-r.over:
			if len(r.news) > 0 { // the refusal came before
				e.report(ctx, w, r, <-r.news)
			}
			return r.take()
		case <-ctx.Done():
			return e.leave(ctx, w, r)
		}
	}
}

// report calls a hook of a call that waits: Waiting for the first refusal, Moved for later ones. If
// the hook panics, the call leaves its line.
func (e *engine) report(ctx context.Context, w *keyLine, r *waiter, n news) {
	hook := r.cfg.hooks.Moved
	if !r.told {
		r.told, hook = true, r.cfg.hooks.Waiting
	}
	guarded(func() { r.refused(ctx, e, hook, n) }, func() {
		if lock, _ := e.leave(ctx, w, r); lock != nil {
			lock.discard(ctx)
		}
	})
}

// triesAlone reports whether r makes its first attempt by itself: the key may have several holders,
// no line waits for it, and the process does not leave it to others.
func (e *engine) triesAlone(r *request) bool {
	if !e.permits(r.cfg) {
		return false
	}
	e.lines.mu.Lock()
	defer e.lines.mu.Unlock()
	_, used := e.lines.shortestLocked(r.line(0), e.lanes(r.cfg))
	return (used == 0 || e.ownOptions(r)) && e.yielding.until(r.names.lock) == 0
}

// ownOptions reports whether r has options of its own, beside those that lines do not depend on, and
// the limit, which their ring has.
func (e *engine) ownOptions(r *request) bool {
	own := r.cfg.settings
	own.limit = e.cfg.limit
	return own != e.cfg.settings
}

// line returns one of the lines in which r may stand.
func (r *request) line(lane int) lineID { return lineID{r.names.lock, r.cfg.limit, lane} }

// lineLocked returns the line that r joins. A call with options of its own is a line by itself.
func (e *engine) lineLocked(r *request) *keyLine {
	if e.ownOptions(r) {
		return newLine(e, r, ownLane)
	}
	id, _ := e.lines.shortestLocked(r.line(0), e.lanes(r.cfg))
	if e.lines.shared[id] == nil {
		e.lines.shared[id] = newLine(e, r, id.lane)
	}
	return e.lines.shared[id]
}

// join adds r to the line of its key.
func (e *engine) join(ctx context.Context, r *waiter) *keyLine {
	r.ctx, r.over = ctx, make(chan struct{})
	c := &r.caller
	c.Of, c.Since, c.Refused = r, r.started.Mono, r.refusal != nil
	hooks := &r.cfg.hooks
	c.Follows = hooks.Moved != nil && !e.several(r.cfg)
	c.Tell = !c.Refused && (hooks.Waiting != nil || c.Follows)
	if c.Tell { // as it is if the call follows: then its refusals are those of its line
		r.news = make(refusals, 1)
	}
	if deadline, ok := ctx.Deadline(); ok {
		c.Deadline = clock.MonoOf(deadline)
	}
	now := r.started
	if r.attempts > 0 {
		now = clock.Now()
	}
	m := e.moment(now)
	var w *keyLine
	var room effects
	out := room[:0]
	e.lines.locked(func() {
		w = e.lineLocked(&r.request)
		w.factsLocked(&m)
		out = w.machine.Join(m.Facts, c, out)
		w.settleLocked(&m, out)
	})
	w.carry(&m, out)
	return w
}

// leave ends the wait of r, whose ctx has ended, unless it was served just now.
func (e *engine) leave(ctx context.Context, w *keyLine, r *waiter) (*Lock, error) {
	m := e.moment(clock.Now())
	var n line.News
	var mine *attempt // has the key
	var room effects
	out, waited := room[:0], false
	e.lines.locked(func() {
		n = w.machine.News(&r.caller)
		if w.machine.State() == line.Holding {
			mine = w.newest
		}
		out, waited = w.machine.Leave(&r.caller, out)
		w.settleLocked(&m, out)
	})
	w.carry(&m, out)
	if !waited {
		<-r.over
		return r.take()
	}
	r.attempts, r.ctx = r.attempts+n.Attempts, nil // its line may last
	last, silence := n.Err, time.Duration(0)
	switch {
	case mine != nil:
		last = mine.refusal(r.names.key)
	case n.Answer == line.Held:
		last = &HeldError{Key: r.names.key, Owner: r.cfg.owner, ours: true}
	case n.Answer == line.None:
		last = r.refusal
	}
	if n.Asking > 0 {
		silence = max(m.Now.Sub(n.Asking), 1)
	}
	old := m.Now.Sub(n.At) > r.cfg.timeout() && silence > r.cfg.timeout()*3/4
	if silence > 0 && (last == nil || old) {
		silence = min(silence, m.now.Since(r.started)) // others of the line may have asked before
		last = e.strategy.trouble(toAcquire, &params{identity: &identity{names: &r.names}, cfg: r.cfg}, silence)
	}
	return nil, &gaveUp{ctxError(ctx), last}
}

// serve ends the wait of r, which has left the line.
func (r *waiter) serve(lock *Lock, err error, attempts int) {
	r.attempts += attempts
	r.lock, r.err = lock, err
	close(r.over)
}

// take returns how the wait of r has ended. The lease of the lock knows r, and must not keep its
// handle or its ctx alive.
func (r *waiter) take() (lock *Lock, err error) {
	lock, r.lock, r.ctx = r.lock, nil, nil
	return lock, r.err
}

// yield has this process leave a key to others for a while, up to longest. Otherwise they would never
// find it free.
func (e *engine) yield(key string, longest time.Duration) {
	e.yielding.note(key, longest-rand.N(longest/2+1))
}

// longestYield returns for how long this process leaves a key to others, at most. Those who wait in a
// queue and could not be told poll soon.
func (e *engine) longestYield(cfg *config) time.Duration {
	if e.quorum {
		return cfg.longest
	}
	return min(2*cfg.shortest, cfg.longest)
}

// A recent notes keys, each for a while.
type recent struct{ sync.Map }

// note notes a key.
func (b *recent) note(key string, d time.Duration) {
	until := clock.MonoNow().Add(d)
	b.Store(key, until)
	time.AfterFunc(d, func() { b.CompareAndDelete(key, until) }) // it ends with that time
}

// until returns until when a key is noted, or 0.
func (b *recent) until(key string) clock.Mono {
	until, known := b.Load(key)
	if !known {
		return 0
	}
	return until.(clock.Mono)
}
