package redlatch

import (
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/line"
	"github.com/redlatch/redlatch/internal/wire"
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

// A waiter is a call that waits in line. It is the line.Waiter of its call.
type waiter struct {
	request
	engine  *engine
	inLine  line.Call
	refusal error         // of an attempt that the call made before it joined; nil: there was none
	news    refusals      // has the newest refusal to report; nil: there is no hook
	told    bool          // it knows of a refusal. Only the call uses this
	over    chan struct{} // closed when it has a lock, or err
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
		now := clock.Now()
		e.lines.Observe(now.Mono, now.Since(r.started), err == nil || errors.Is(err, ErrNotAcquired))
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
	e.join(ctx, r)
	for {
		select {
		case n := <-r.news:
			e.report(ctx, r, n)
		case <-r.over:
			if len(r.news) > 0 { // the refusal came before
				e.report(ctx, r, <-r.news)
			}
			return r.take()
		case <-ctx.Done():
			return e.leave(ctx, r)
		}
	}
}

// report calls a hook of a call that waits: Waiting for the first refusal, Moved for later ones. If
// the hook panics, the call leaves its line.
func (e *engine) report(ctx context.Context, r *waiter, n news) {
	hook := r.cfg.hooks.Moved
	if !r.told {
		r.told, hook = true, r.cfg.hooks.Waiting
	}
	guarded(func() { r.refused(ctx, e, hook, n) }, func() {
		if lock, _ := e.leave(ctx, r); lock != nil {
			lock.discard(ctx)
		}
	})
}

// triesAlone reports whether r makes its first attempt by itself: the key may have several holders,
// no line waits for it, and the process does not leave it to others.
func (e *engine) triesAlone(r *request) bool {
	return e.permits(r.cfg) && e.lines.TriesAlone(r.line(), e.lanesOf(r))
}

// lanesOf returns how many lines there are for the calls of a key with the options of r. With options of its own, beside
// those that lines do not depend on, a call is a line by itself.
func (e *engine) lanesOf(r *request) int {
	own := r.cfg.settings
	own.limit = e.cfg.limit // lines depend on it
	if own != e.cfg.settings {
		return 0
	}
	return e.lanes(r.cfg)
}

// line returns what the lines are called in which r may stand.
func (r *request) line() line.ID { return line.ID{Lock: r.names.lock, Limit: r.cfg.limit} }

// join adds r to the line of its key.
func (e *engine) join(ctx context.Context, r *waiter) {
	r.engine, r.over = e, make(chan struct{})
	c := &r.inLine
	c.By, c.Attempts, c.Since, c.Refused = r, r.attempts, r.started.Mono, r.refusal != nil
	hooks := &r.cfg.hooks
	c.Follows = hooks.Moved != nil && !e.several(r.cfg)
	c.Tell = !c.Refused && (hooks.Waiting != nil || c.Follows)
	if c.Tell { // as it is if the call follows: then its refusals are those of its line
		r.news = make(refusals, 1)
	}
	now := r.started
	if r.attempts > 0 {
		now = clock.Now()
	}
	e.lines.Join(ctx, c, r.line(), e.lanesOf(&r.request), now)
}

// leave ends the wait of r, whose ctx has ended, unless it was served just now.
func (e *engine) leave(ctx context.Context, r *waiter) (*Lock, error) {
	now := clock.Now()
	n, waited := e.lines.Leave(&r.inLine, now)
	if !waited {
		<-r.over
		return r.take()
	}
	r.attempts += n.Attempts
	last, silence := n.Err, n.Silence
	switch {
	case n.Holder != nil:
		last = attemptBy(n.Holder).refusal(r.names.key)
	case n.Answer == line.Held:
		last = &HeldError{Key: r.names.key, Owner: r.cfg.owner, ours: true}
	case n.Answer == line.None:
		last = r.refusal
	}
	old := now.Mono.Sub(n.At) > r.cfg.timeout() && silence > r.cfg.timeout()*3/4
	if silence > 0 && (last == nil || old) {
		silence = min(silence, now.Since(r.started)) // others of the line may have asked before
		last = e.strategy.trouble(toAcquire, &params{identity: &identity{names: &r.names}, cfg: r.cfg}, silence)
	}
	return nil, &gaveUp{ctxError(ctx), last}
}

// lineOptions returns those of a line whose calls have a config.
func (t *traits) lineOptions(cfg *config) line.Options {
	o := line.Options{
		Config: line.Config{
			Several: t.several(cfg) && !t.writes, Together: t.reads, Quorum: t.quorum,
			Confirms: cfg.replicas > 0, TTL: cfg.asked, Shortest: cfg.shortest, Longest: cfg.longest,
		},
		Polls: cfg.noQueue, Limit: cfg.limit, Renews: cfg.renew,
		Grace: cfg.grace, MinHold: cfg.minHold, MaxHold: cfg.maxHold,
	}
	if !o.Several && cfg.maxHold == 0 && cfg.minHold == 0 && cfg.replicas == 0 {
		o.Passes = wire.FencesOfTick - 1
	}
	return o
}

// Options returns those of a line that begins with r.
func (r *waiter) Options() *line.Options { return &r.cfg.line }

// Attempt returns an attempt of the line that has begun with r.
func (r *waiter) Attempt() *line.Attempt {
	return &r.engine.newAttempt(&r.request, r.cfg.line.Passes > 0).inLine
}

// Fail ends the wait of r, which has left the line.
func (r *waiter) Fail(err error, attempts int) { r.serve(nil, err, attempts) }

// Tell has the call report a refusal.
func (r *waiter) Tell(holder *line.Attempt, err error, attempts int) {
	if err == nil {
		err = attemptBy(holder).refusal(r.names.key)
	}
	r.news.replace(news{err, attempts})
}

// Trouble calls Hooks.Trouble in a goroutine that ends with the hook.
func (r *waiter) Trouble(ctx context.Context, err error, attempts int) {
	if hook, trouble := r.engine.troubleOf(&r.request, attempts, err); hook != nil {
		go hook(ctx, trouble)
	}
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
	lock, r.lock = r.lock, nil
	return lock, r.err
}

// longestYield returns for how long this process leaves a key to others, at most. Those who wait in a
// queue and could not be told poll soon.
func (e *engine) longestYield(cfg *config) time.Duration {
	if e.quorum {
		return cfg.longest
	}
	return min(2*cfg.shortest, cfg.longest)
}
