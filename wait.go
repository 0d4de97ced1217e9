package redlatch

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/redlatch/redlatch/internal/line"
)

// news is a refusal of a call that waits, after a number of attempts.
type news struct {
	err      error
	attempts int
}

// refusals has room for one.
type refusals chan news

// replace sends n in place of what was not received.
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

// lock waits in line for the key of r.
func (e *engine) lock(ctx context.Context, r *request) (*Lock, error) {
	if err := e.held(ctx, r); err != nil {
		return nil, err
	}
	if e.clear(r) {
		lock, err := e.try(ctx, r)
		v := e.begin()
		e.observeLocked(v, v.now.Since(r.started), err)
		e.lines.mu.Unlock()
		if !errors.Is(err, ErrNotAcquired) {
			return lock, err
		}
		r.refusal = err
		r.refused(e, r.cfg.hooks.Waiting, news{err, r.attempts})
	}
	w := e.join(ctx, r)
	for {
		select {
		case first := <-r.news:
			e.report(ctx, w, r, r.cfg.hooks.Waiting, first)
		case other := <-r.moved:
			e.report(ctx, w, r, r.cfg.hooks.Moved, other)
		case got := <-r.served.reply:
			if len(r.news) > 0 { // the refusal came before
				r.served.done(got)
				continue
			}
			e.waits.Put(r.served)
			return got.lock, got.err
		case <-ctx.Done():
			return e.leave(ctx, w, r)
		}
	}
}

// report calls a hook of a call that waits. If the hook panics, the call leaves its line.
func (e *engine) report(ctx context.Context, w *waiters, r *request, hook func(Event), n news) {
	guarded(func() { r.refused(e, hook, n) }, func() {
		if lock, _ := e.leave(ctx, w, r); lock != nil {
			lock.discard(ctx)
		}
	})
}

// clear reports whether r makes its first attempt by itself: the key may have several holders, no line waits for it, and the
// process does not leave it to others.
func (e *engine) clear(r *request) bool {
	if !e.shares {
		return false
	}
	e.lines.mu.Lock()
	defer e.lines.mu.Unlock()
	_, rests := e.resting.Load(r.place.key)
	return (r.cfg.settings != e.cfg.settings || len(e.lines.byKey[r.place.key]) == 0) && !rests
}

// lineLocked returns the line that r joins. A call with options of its own is a line by itself. Others begin a line until the key
// has as many as it may have, and then join them in turn.
func (e *engine) lineLocked(r *request) *waiters {
	if r.cfg.settings != e.cfg.settings {
		return newLine(e, r)
	}
	all := e.lines.byKey[r.place.key]
	if len(all) < max(e.lanes, 1) {
		w := newLine(e, r)
		e.lines.byKey[r.place.key] = append(all, w)
		return w
	}
	w := all[0]
	copy(all, all[1:])
	all[len(all)-1] = w
	return w
}

// join adds r to the line of its key.
func (e *engine) join(ctx context.Context, r *request) *waiters {
	r.ctx, r.served = ctx, e.wait()
	c := &r.spot
	c.Of, c.Since, c.Refused = r, e.offset(r.started.Mono), r.refusal != nil
	if r.cfg.hooks.Waiting != nil && !c.Refused {
		r.news, c.Tell = make(refusals, 1), true
	}
	if r.cfg.hooks.Moved != nil {
		r.moved, c.Follows = make(refusals, 1), true
	}
	if deadline, ok := ctx.Deadline(); ok {
		c.Deadline = e.offset(deadline)
	}
	v := e.begin()
	v.Rest = e.restOf(r.place.key)
	w := e.lineLocked(r)
	v.effects = w.Join(v.Facts, c, v.effects)
	v.finish(w)
	return w
}

// leave ends the wait of r, whose ctx has ended, unless it was served just now.
func (e *engine) leave(ctx context.Context, w *waiters, r *request) (*Lock, error) {
	v := e.begin()
	n := w.News(&r.spot)
	now, left := v.Now, false
	v.effects, left = w.Leave(&r.spot, v.effects)
	v.finish(w)
	if !left {
		got := <-r.served.reply
		e.waits.Put(r.served)
		return got.lock, got.err
	}
	r.attempts += n.Attempts
	last, silence := n.Err, time.Duration(0)
	switch n.Answer {
	case line.Held:
		last = &HeldError{Owner: r.cfg.owner, ours: true, err: ErrNotAcquired}
	case line.None:
		last = r.refusal
	}
	if n.Asking > 0 {
		silence = max(now-n.Asking, 1)
	}
	old := now-n.At > r.cfg.timeout() && silence > r.cfg.timeout()*3/4
	if silence > 0 && (last == nil || old) {
		last = e.strategy.trouble(toAcquire, &params{place: r.place}, silence)
	}
	return nil, &gaveUp{ctxError(ctx), last}
}

// serve ends the wait of r, which has left the line.
func (r *request) serve(lock *Lock, err error, attempts int) {
	r.attempts += attempts
	r.served.done(reply{lock: lock, err: err})
}

// rest has this process leave a key alone for a while, up to longest: others want it, and would never find it free otherwise.
func (e *engine) rest(key string, longest time.Duration) {
	d := longest - rand.N(longest/2+1)
	until := time.Now().Add(d)
	e.resting.Store(key, until)
	time.AfterFunc(d, func() { e.resting.CompareAndDelete(key, until) }) // it ends with the rest
}
