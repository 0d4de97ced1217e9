package redlatch

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	core "github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/line"
	"github.com/redlatch/redlatch/internal/node"
)

// errSlow is the error of a grant that came when nothing was left of its lease.
var errSlow = fmt.Errorf("%w: the grant took longer than the lease lasts", ErrLost)

// engine is the Locker of every strategy: it makes tokens and attempts, handles their outcomes, and cleans up.
//
// Each mutex guards the fields below it. No command runs under one, and none is locked under another.
type engine struct {
	habits
	strategy strategy
	cfg      *config
	lines    lines
	epoch    time.Time // that line.Facts count from
	resting  sync.Map  // until when this process does not ask for a key that others want, by the key
	troubles sync.Map  // when Hooks.Trouble was last called for a cause
	waits    sync.Pool // of *wait
}

func newEngine(s strategy, h habits, opts []Option) (Locker, error) {
	cfg, err := configured(s, defaults(), opts)
	if err != nil {
		return nil, wrap("new "+h.name, "", err)
	}
	e := &engine{habits: h, strategy: s, cfg: cfg, epoch: time.Now().Add(-time.Second)}
	e.lines.byKey, e.lines.waiting, e.lines.tokens = make(map[string][]*waiters), make(map[*waiters]struct{}), make(map[string]*lease)
	for i, n := range e.nodes {
		n.Trouble = func(err error) { e.reportNode(e.names[i], err) }
	}
	if e.inbox != nil {
		e.inbox.Deliver, e.inbox.Changed, e.inbox.Degraded = e.deliver, e.changed, e.reportDegraded
	}
	return e, nil
}

// configured returns a config changed by opts, if s supports that.
func configured(s strategy, cfg config, opts []Option) (*config, error) {
	cfg, err := cfg.with(opts)
	if err == nil {
		err = s.check(&cfg)
	}
	return &cfg, err
}

// request is a call of a Locker.
type request struct {
	key      string // as the caller named it
	place    place
	cfg      *config
	started  clock.Instant
	attempts int // by this process, while the call lasts. Those of its line are added when it leaves the line

	// Of a call that waits in line. lines.mu guards them.
	spot    line.Caller[*request]
	ctx     context.Context //nolint:containedctx // for its values, which travel with what its line asks
	refusal error           // of an attempt that the call made before it joined; nil: there was none
	news    refusals        // has the first refusal of the line; nil: there is no hook, or the call has seen one
	moved   refusals        // has the newest one that has shown another holder since; nil: there is no hook
	served  *wait           // gets the lock or the error
}

// request checks the arguments of a call before anything is sent.
func (e *engine) request(ctx context.Context, key string, opts []Option) (r *request, err error) {
	r = &request{key: key, cfg: e.cfg, started: clock.Now()}
	switch {
	case ctx == nil:
		return r, invalid("ctx is nil")
	case key == "":
		return r, invalid("key is empty")
	case len(opts) > 0:
		r.cfg, err = configured(e.strategy, *e.cfg, opts)
	}
	if err == nil {
		r.place, err = e.strategy.place(r.cfg.prefix, key)
	}
	if err == nil && ctx.Err() != nil {
		err = &node.NotDone{Err: ctxError(ctx)}
	}
	return r, err
}

func (r *request) params(token string) params {
	return params{
		place: r.place, at: r.place.words(), token: token, timeout: r.cfg.timeout(), ttl: r.ttl(), ttlMS: r.ttl().Milliseconds(),
		replicas: r.cfg.replicas, replicaTimeout: r.cfg.replicaTimeout,
	}
}

// ttl returns the TTL to ask for.
func (r *request) ttl() time.Duration {
	ttl := max(r.cfg.ttl, (r.cfg.minHold + time.Millisecond - 1).Truncate(time.Millisecond))
	if r.cfg.maxHold > 0 {
		ttl = min(ttl, clock.TTLFor(r.cfg.maxHold, r.cfg.drift))
	}
	return ttl
}

func (e *engine) TryLock(ctx context.Context, key string, opts ...Option) (*Lock, error) {
	return e.call(ctx, "try lock", key, opts, e.try)
}

func (e *engine) Lock(ctx context.Context, key string, opts ...Option) (*Lock, error) {
	return e.call(ctx, "lock", key, opts, e.lock)
}

// Adopt proves the token by extending the lock.
func (e *engine) Adopt(ctx context.Context, key, token string, opts ...Option) (*Lock, error) {
	return e.call(ctx, "adopt", key, opts, func(ctx context.Context, r *request) (*Lock, error) { return e.adopt(ctx, r, token) })
}

// call makes a call, and calls Hooks.Acquired or Hooks.Trouble. A hook that panics leaves no lock.
func (e *engine) call(
	ctx context.Context, op, key string, opts []Option, do func(context.Context, *request) (*Lock, error),
) (*Lock, error) {
	r, err := e.request(ctx, key, opts)
	if err != nil {
		return nil, wrap(op, key, err)
	}
	lock, err := do(ctx, r)
	e.reportFailure(r, err)
	if hook := r.cfg.hooks.Acquired; hook != nil && lock != nil {
		event := Event{Fence: lock.fence, Attempts: r.attempts, Elapsed: clock.Now().Since(r.started)}
		guarded(func() { lock.lease.fire(hook, event) }, func() { lock.discard(ctx) })
	}
	return lock, wrap(op, key, err)
}

// A wait is for the reply to one operation.
type wait struct {
	reply chan reply
	done  func(reply)
}

// wait returns a wait. One that was put back is used again, which saves two allocations. Each Locker has its own: a channel of a
// bubble of synctest stays in it.
func (e *engine) wait() *wait {
	if w, ok := e.waits.Get().(*wait); ok {
		return w
	}
	c := make(chan reply, 1)
	return &wait{c, func(got reply) { c <- got }}
}

// run runs an operation, and waits for its reply or for the end of ctx. The operation goes on without its caller: left is true
// then, and rest gets the reply, in a goroutine of its own.
func (e *engine) run(ctx context.Context, op op, p *params, rest func(reply)) (got reply, left bool) {
	start := clock.Now()
	w := e.wait()
	e.strategy.do(ctx, op, p, w.done)
	select {
	case got = <-w.reply:
		e.waits.Put(w)
		return got, false
	case <-ctx.Done():
	}
	go func() { rest(<-w.reply) }() // ends with the operation
	return reply{err: &gaveUp{ctxError(ctx), e.strategy.trouble(op, p, clock.Now().Since(start))}}, true
}

// try makes an attempt. Within the op timeout it repeats one that split the votes of a quorum, so that of several processes that
// attempt at one instant one is granted the lock.
func (e *engine) try(ctx context.Context, r *request) (*Lock, error) {
	for pause := r.cfg.shortest; ; pause = min(2*pause, r.cfg.longest) {
		lock, split, err := e.attempt(ctx, r)
		within := r.cfg.timeout() - clock.Now().Since(r.started)
		if !split || within < pause || !sleep(ctx, rand.N(pause)) {
			return lock, err
		}
	}
}

// attempt makes a single attempt. If the outcome is unknown, or ctx ends first, the token is released.
func (e *engine) attempt(ctx context.Context, r *request) (lock *Lock, split bool, err error) {
	a := e.newAttempt(r, nil, tokenOf(r.cfg.owner))
	r.attempts++
	start := clock.Now()
	got, left := e.run(ctx, toAcquire, &a.params, func(got reply) {
		a.answered(got)
		if mayBeThere(got, got.err) {
			a.undo(ctx, got.err)
		}
	})
	if left {
		a.unwanted.Store(true)
		return nil, false, got.err
	}
	a.answered(got)
	err = heldBy(got)
	if err == nil {
		lock, err = a.grant(start, got)
	}
	if err != nil && mayBeThere(got, err) {
		a.undo(ctx, err)
	}
	return lock, got.split, err
}

// undo releases the token of an attempt that failed with err, or whose caller has left, and waits for that until ctx ends. It does
// not wait if most likely no release can be sent: if Redis cannot be reached, the key ends with its TTL.
func (l *lease) undo(ctx context.Context, err error) {
	p, undone := l.params.releasing("", 0), make(chan struct{})
	l.send(ctx, &p, func(reply) { close(undone) })
	if node.Unreachable(err) {
		return
	}
	select {
	case <-undone:
	case <-ctx.Done():
	}
}

// mayBeThere reports whether an attempt may have left its token in Redis, or may do so. err is nil if it was granted.
func mayBeThere(got reply, err error) bool { return got.resent || !knownNotDone(err) }

// answered notes the reply to an acquire. If it was resent, an earlier send may be carried out until its timeout has passed.
func (l *lease) answered(got reply) {
	if got.resent {
		l.unclear = time.Now().Add(l.params.timeout + l.params.replicaTimeout)
	}
}

// newAttempt returns a lease that is not granted yet.
func (e *engine) newAttempt(r *request, w *waiters, token string) *lease {
	a := &lease{engine: e, r: r, line: w, params: r.params(token)}
	a.params.unwanted = &a.unwanted
	a.core.Config = core.Config{
		TTL: r.cfg.ttl, Asked: a.params.ttl, MaxHold: r.cfg.maxHold, MinHold: r.cfg.minHold, Timeout: a.params.timeout,
		Drift: r.cfg.drift, Renews: r.cfg.renew, Passes: w != nil && w.Passes > 0,
	}
	return a
}

// grant starts the lease of a request that was sent at start, and returns the handle for the caller. It fails with errSlow if
// nothing of the lease is left.
func (l *lease) grant(start clock.Instant, got reply) (*Lock, error) {
	now, g := clock.Now(), l.granted(start, got)
	if g.over(now) {
		return nil, errSlow
	}
	return l.serve(l.r, now, 0, &g), nil
}

func (e *engine) adopt(ctx context.Context, r *request, token string) (*Lock, error) {
	switch {
	case token == "":
		return nil, invalid("token is empty")
	case isKeeper(token):
		return nil, errNotOurs // nobody holds the key
	}
	a := e.newAttempt(r, nil, token)
	a.core.Share()
	start := clock.Now()
	got, _ := e.run(ctx, toAdopt, &a.params, ignored)
	if got.err != nil {
		return nil, got.err
	}
	return a.grant(start, got)
}

func (e *engine) Inspect(ctx context.Context, key string) (Status, error) {
	r, err := e.request(ctx, key, nil)
	if err != nil {
		return Status{}, wrap("inspect", key, err)
	}
	p := r.params("")
	got, _ := e.run(ctx, toInspect, &p, ignored)
	st := got.status
	st.Owner, st.Since = ownerOf(st.Token), madeAt(st.Token)
	if isKeeper(st.Token) {
		st.Token = ""
	}
	if st.Held {
		st.Holders = max(st.Holders, 1)
	}
	return st, wrap("inspect", key, got.err)
}

// MinHold returns a function that ends the minimum hold of a key, but no later one, and what is left of it. The function is nil
// if there is none. It is for "redlatch unlock": Locker does not have it, since a program should not need it.
func (e *engine) MinHold(ctx context.Context, key string) (end func(context.Context) error, left time.Duration, err error) {
	r, err := e.request(ctx, key, nil)
	if err != nil {
		return nil, 0, wrap("inspect", key, err)
	}
	p := r.params("")
	got, _ := e.run(ctx, toInspect, &p, ignored)
	if got.err != nil || !isKeeper(got.status.Token) {
		return nil, 0, wrap("inspect", key, got.err)
	}
	kept := r.params(got.status.Token)
	back := kept.releasing("", 0)
	return func(ctx context.Context) error {
		got, _ := e.run(ctx, toRelease, &back, ignored)
		return wrap("unlock", key, got.err)
	}, got.status.TTL, nil
}

// refused calls a hook, if there is one, with a refusal.
func (r *request) refused(e *engine, hook func(Event), n news) {
	if hook != nil {
		hook(r.event(e, n.attempts, n.err))
	}
}

// event describes a call that has no lock yet, after a number of attempts.
func (r *request) event(e *engine, attempts int, err error) Event {
	return Event{
		Strategy: e.name, Key: r.key, Owner: r.cfg.owner, Attempts: attempts, Elapsed: clock.Now().Since(r.started), Err: err,
	}
}
