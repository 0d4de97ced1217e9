package redlatch

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/handoff"
	"github.com/redlatch/redlatch/internal/node"
)

// errSlow is the error of a grant that came when nothing was left of its lease.
var errSlow = fmt.Errorf("%w: the grant took longer than the lease lasts", ErrLost)

// engine is the Locker of every strategy: it makes tokens and attempts, handles their outcomes, and cleans up.
//
// Each mutex guards the fields below it. No command runs under one. Two are nested: Node.Trouble locks troubles.mu under
// the mutex of its node, and lease.whileHeld posts a call, which locks that of the node, under lease.mu.
//
// Goroutines and timers of this package, besides those of internal/handoff and the couriers of internal/node:
//
//	started by               to                                 ends                             awaited by
//	lease.begin              renew the lease (timer)            when the lease ends              Unlock, if it renews
//	attempt.giveUp           release, if Redis is unreachable   with the op timeout              nobody
//	attempt.leaveQueue       give up a place in the queue       with the op timeout              Lock, until ctx ends
//	sleep                    pause (timer)                      with the pause or ctx            Lock or Lead
//	lease.reportLoss         drop a handed lock's entry (timer) with the op timeout              nobody
//	lease.giveBack           hand on after WithMinHold (timer)  min hold and op timeout          nobody
//	lockState.reap           look for a late acquire (timer)    with the last look               nobody
//	lease.context, link      react to the end of a lease        at once                          nobody
//	redlock.heal             heal nodes that answer later       with the extension's timeout     nobody
//	engine.reportNode        call Hooks.Trouble                 with the hook                    nobody
type engine struct {
	strategy strategy
	cfg      *config
	now      func() clock.Instant // clock.Now, except in tests
	turns    handoff.Turns
	// commandTime is about how long an attempt of a waiter takes at the moment, in ns.
	commandTime atomic.Int64
	waitlist    *handoff.Waitlist // nil if waiters always poll
	troubles    troubles
}

func newEngine(s strategy, opts []Option) (Locker, error) {
	cfg, err := defaults().with(opts)
	if err == nil && cfg.token != "" {
		err = invalid("WithToken: it is for one call, not for a Locker")
	}
	if err == nil {
		err = s.check(&cfg)
	}
	if err != nil {
		return nil, wrap("new "+s.name(), "", err)
	}
	e := &engine{strategy: s, cfg: &cfg, now: clock.Now}
	if s, ok := s.(ofNodes); ok {
		s.onTrouble(e.reportNode)
	}
	if s, ok := s.(handsOn); ok {
		e.waitlist = handoff.NewWaitlist(s.subscription(), func() clock.Instant { return e.now() }, e.reportDegraded)
	}
	return e, nil
}

// request is a call of a Locker. All its attempts share it.
type request struct {
	key      string // as the caller named it
	place    place
	cfg      *config
	started  clock.Instant
	attempts int
	last     error // of the last attempt of a wait
}

// request checks the arguments of a call before anything is sent.
func (e *engine) request(ctx context.Context, key string, opts []Option) (r *request, err error) {
	r = &request{key: key, cfg: e.cfg, started: e.now()}
	if ctx == nil {
		return r, invalid("ctx is nil")
	}
	if key == "" {
		return r, invalid("key is empty")
	}
	if len(opts) > 0 {
		cfg, err := e.cfg.with(opts)
		if err == nil {
			err = e.strategy.check(&cfg)
		}
		if err != nil {
			return r, err
		}
		r.cfg = &cfg
	}
	r.place, err = e.strategy.place(r.cfg.prefix, key)
	if err == nil && ctx.Err() != nil {
		err = &node.NotDone{Err: node.CtxError(ctx)}
	}
	return r, err
}

func (r *request) target(token string) target {
	return target{
		place: r.place, token: token, callerToken: token != "",
		timeout: r.cfg.timeout(), serverTime: r.cfg.serverTime,
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
	r, err := e.request(ctx, key, opts)
	if err != nil {
		return nil, wrap("try lock", key, err)
	}
	lock, _, err := e.once(ctx, r)
	e.reportFailure(r, err)
	return lock, wrap("try lock", key, err)
}

func (e *engine) Lock(ctx context.Context, key string, opts ...Option) (*Lock, error) {
	r, err := e.request(ctx, key, opts)
	if refused := waits(r.cfg); refused != nil { // also if ctx has ended
		err = refused
	}
	if err != nil {
		return nil, wrap("lock", key, err)
	}
	lock, err := e.lock(ctx, r)
	e.reportFailure(r, err)
	return lock, wrap("lock", key, err)
}

func (e *engine) lock(ctx context.Context, r *request) (*Lock, error) {
	queues := e.waitlist != nil && !r.cfg.noQueue
	if queues && e.waitlist.Subscription.IsReady() {
		return e.queue(ctx, r)
	}
	if e.waitlist == nil {
		e.yield(ctx, r)
	}
	asked := e.now()
	lock, refusal, err := e.once(ctx, r)
	switch {
	case err == nil:
		return lock, nil
	case endedBy(ctx, err):
		return nil, e.gaveUp(ctx, r, asked, err)
	case !errors.Is(err, ErrNotAcquired):
		return nil, err
	}
	r.last = err
	r.waiting(e, err)
	if queues {
		return e.queue(ctx, r)
	}
	return e.poll(ctx, r, refusal)
}

// endedBy reports whether an attempt failed with err because ctx ended, or was refused when ctx had ended.
func endedBy(ctx context.Context, err error) bool {
	end := ctx.Err()
	return end != nil && (errors.Is(err, end) || errors.Is(err, ErrNotAcquired))
}

// once makes a single attempt, and gives it up if it fails.
func (e *engine) once(ctx context.Context, r *request) (*Lock, acquireReply, error) {
	a, err := e.newAttempt(r, r.cfg.token)
	if err != nil {
		return nil, acquireReply{}, err
	}
	lock, got, err := a.ask(ctx, "", false)
	if err != nil {
		a.giveUp(ctx, err)
	}
	return lock, got, err
}

// An attempt is a token that may come to own the key. It becomes a lease when it is granted.
type attempt struct {
	engine *engine
	r      *request
	params acquireParams
	state  lockState
}

// newAttempt returns an attempt with a token, or with a fresh one if token is empty.
func (e *engine) newAttempt(r *request, token string) (*attempt, error) {
	a := &attempt{engine: e, r: r}
	a.params = acquireParams{
		target: r.target(token), ttl: r.ttl(),
		replicas: r.cfg.replicas, replicaTimeout: r.cfg.replicaTimeout,
		state: &a.state,
	}
	if token == "" {
		id, err := uuid.NewRandom()
		if err != nil {
			return nil, &node.NotDone{Err: err}
		}
		a.params.token = tokenOf(r.cfg.owner, id)
	}
	return a, nil
}

// ask sends one acquire. If entry is set, a refused acquire puts it into the queue; queued says that it should be
// there already. A grant that comes when nothing is left of its lease is an error. After an error that is not
// knownNotDone the lock may have been taken: ask again, or give up.
func (a *attempt) ask(ctx context.Context, entry string, queued bool) (*Lock, acquireReply, error) {
	a.r.attempts++
	p := &a.params
	if entry != "" {
		queueing := a.params
		queueing.entry, queueing.queued = entry, queued
		p = &queueing
	}
	start := a.engine.now()
	got, err := a.engine.strategy.acquire(ctx, p)
	if err != nil {
		return nil, got, heldBy(got, err)
	}
	a.state.again.Store(got.alreadyHeld)
	lock, err := (&lease{attempt: a, fence: got.fence, recheckAt: got.recheckAfter}).grant(start)
	return lock, got, err
}

// grant starts the lease of a request that was sent at start, and returns the handle for the caller. It fails with
// errSlow if nothing of the lease is left.
func (l *lease) grant(start clock.Instant) (*Lock, error) {
	length := clock.Validity(l.params.ttl, l.r.cfg.drift)
	if l.engine.now().Since(start) >= length {
		return nil, errSlow
	}
	lock := l.begin(start, length)
	if hook := l.r.cfg.hooks.Acquired; hook != nil {
		hook(l.r.event(l.engine, ownerOf(l.params.token), l.fence))
	}
	return lock, nil
}

// giveUp ends an attempt that failed with err. Commands that are carried out later are undone. If the outcome is
// unknown, the token is released, unless the caller chose it.
func (a *attempt) giveUp(ctx context.Context, err error) {
	a.state.become(refused)
	switch {
	case knownNotDone(err), a.params.callerToken:
	case node.Unreachable(err): // most likely neither the acquire nor the release can be sent
		go a.undo(detached(ctx), "") //nolint:errcheck // it ends with its timeout
	default:
		_ = a.undo(ctx, "")
	}
}

// undo releases the token of an attempt and takes its entry out of the queue. The caller waits while ctx lasts; the
// release continues without it. If Redis cannot be reached, the key ends with its TTL.
func (a *attempt) undo(ctx context.Context, entry string) error {
	_, err := a.engine.strategy.release(ctx, &releaseParams{target: a.params.target, entry: entry})
	return err
}

// Adopt proves the token by extending the lock.
func (e *engine) Adopt(ctx context.Context, key, token string, opts ...Option) (*Lock, error) {
	r, err := e.request(ctx, key, opts)
	switch {
	case err != nil:
	case token == "":
		err = invalid("token is empty")
	case r.cfg.token != "" && r.cfg.token != token:
		err = invalid("WithToken: Adopt was given another token")
	case isKeeper(token):
		err = errNotOurs // nobody holds the key
	}
	if err != nil {
		return nil, wrap("adopt", key, err)
	}
	lock, err := e.adopt(ctx, r, token)
	e.reportFailure(r, err)
	return lock, wrap("adopt", key, err)
}

func (e *engine) adopt(ctx context.Context, r *request, token string) (*Lock, error) {
	a, err := e.newAttempt(r, token)
	if err != nil {
		return nil, err
	}
	start := e.now()
	fence, err := e.strategy.adopt(ctx, &a.params)
	if err != nil {
		return nil, err
	}
	return (&lease{attempt: a, fence: fence}).grant(start)
}

func (e *engine) Inspect(ctx context.Context, key string) (Status, error) {
	r, err := e.request(ctx, key, nil)
	if err != nil {
		return Status{}, wrap("inspect", key, err)
	}
	p := r.target("")
	st, err := e.strategy.inspect(ctx, &p)
	st.Owner = ownerOf(st.Token)
	if isKeeper(st.Token) {
		st.Token = ""
	}
	if st.Held {
		st.Holders = max(st.Holders, 1)
	}
	return st, wrap("inspect", key, err)
}

// waiting calls Hooks.Waiting after the refusal err.
func (r *request) waiting(e *engine, err error) {
	if hook := r.cfg.hooks.Waiting; hook != nil {
		event := r.event(e, r.cfg.owner, 0)
		event.Err = err
		hook(event)
	}
}

func (r *request) event(e *engine, owner string, fence uint64) Event {
	return Event{
		Strategy: e.strategy.name(), Key: r.key, Owner: owner, Fence: fence,
		Attempts: r.attempts, Elapsed: e.now().Since(r.started),
	}
}
