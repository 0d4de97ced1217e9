package redlatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/redlatch/redlatch/internal/node"
)

// errSlow says that a grant arrived when nothing was left of its lease. It was given back.
var errSlow = fmt.Errorf("%w: the grant took longer than the lease lasts", ErrLost)

// engine is the Locker of every strategy: tokens, attempts and their three outcomes, clean-up.
type engine struct {
	strategy strategy
	cfg      *config
	now      func() instant // readClocks but in tests
	turns    turns
	waitlist *waitlist // nil: waiters poll
	troubles troubles
}

// newEngine returns the Locker that keeps its locks by s.
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
	e := &engine{strategy: s, cfg: &cfg, now: readClocks}
	if s, ok := s.(ofNodes); ok {
		s.onTrouble(e.metOn)
	}
	if s, ok := s.(handsOn); ok {
		e.waitlist = newWaitlist(e, s.subscription())
	}
	return e, nil
}

// request is a call as the caller meant it: what all its attempts share.
type request struct {
	key      string // as the caller named it
	place    place
	cfg      *config
	started  instant
	attempts int
	last     error // what the last attempt of a wait met with
}

// request checks what a caller asks for, before anything is sent.
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
	return r, err
}

// target returns the lock that r is about.
func (r *request) target(token string) target {
	return target{
		place: r.place, token: token, callerToken: token != "",
		timeout: r.cfg.timeout(), serverTime: r.cfg.serverTime,
	}
}

// ttl returns how long a lease to ask for.
func (r *request) ttl() time.Duration {
	ttl := max(r.cfg.ttl, (r.cfg.minHold + time.Millisecond - 1).Truncate(time.Millisecond))
	if r.cfg.maxHold > 0 {
		ttl = min(ttl, ttlFor(r.cfg.maxHold, r.cfg.drift))
	}
	return ttl
}

// TryLock makes one attempt.
func (e *engine) TryLock(ctx context.Context, key string, opts ...Option) (*Lock, error) {
	r, err := e.request(ctx, key, opts)
	if err != nil {
		return nil, wrap("try lock", key, err)
	}
	lock, _, err := e.once(ctx, r)
	return lock, wrap("try lock", key, err)
}

// Lock attempts once and then waits its turn.
func (e *engine) Lock(ctx context.Context, key string, opts ...Option) (*Lock, error) {
	r, err := e.request(ctx, key, opts)
	if err != nil {
		return nil, wrap("lock", key, err)
	}
	lock, err := e.lock(ctx, r)
	if err != nil && r.cfg.retried && !endedBy(ctx, err) && !permanent(err) {
		e.met(r, err)
	}
	return lock, wrap("lock", key, err)
}

func (e *engine) lock(ctx context.Context, r *request) (*Lock, error) {
	queues := e.waitlist != nil && !r.cfg.noQueue
	if queues && e.waitlist.subscription.isReady() {
		return e.queue(ctx, r)
	}
	if e.waitlist == nil && !e.yield(ctx, r) {
		return nil, &gaveUp{ctx: node.CtxError(ctx)}
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
	r.fire(e, r.cfg.hooks.Waiting)
	if queues {
		return e.queue(ctx, r)
	}
	return e.poll(ctx, r, refusal)
}

// endedBy reports whether an attempt that failed with err came to nothing but the end of ctx, or to a
// refusal when ctx had ended.
func endedBy(ctx context.Context, err error) bool {
	end := ctx.Err()
	return end != nil && (errors.Is(err, end) || errors.Is(err, ErrNotAcquired))
}

// once makes a single attempt. What a failed one may have left is given back.
func (e *engine) once(ctx context.Context, r *request) (*Lock, acquireReply, error) {
	a, err := e.newAttempt(r)
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

// newAttempt returns an attempt with the token that the caller chose, or else with a fresh one.
func (e *engine) newAttempt(r *request) (*attempt, error) {
	a := &attempt{engine: e, r: r}
	a.params = acquireParams{
		target: r.target(r.cfg.token), ttl: r.ttl(),
		replicas: r.cfg.replicas, replicaTimeout: r.cfg.replicaTimeout,
		state: &a.state,
	}
	if r.cfg.token == "" {
		id, err := uuid.NewRandom()
		if err != nil {
			return nil, &node.NotDone{Err: err}
		}
		a.params.token = tokenOf(r.cfg.owner, id)
	}
	return a, nil
}

// ask asks for the lock once, and for a place in the queue if there is an entry. queued says that it has one. A grant that comes when
// nothing is left of its lease is no grant. After an error that is not knownNotDone the lock may have been
// taken: ask again, or give up.
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
	length := validity(p.ttl, a.r.cfg.drift)
	switch {
	case err != nil:
		return nil, got, heldBy(got, err)
	case a.engine.now().since(start) >= length:
		return nil, got, errSlow
	}
	l := &lease{attempt: a, fence: got.fence, recheckAt: got.recheckAfter}
	return l.handOut(start, length), got, nil
}

// handOut starts the lease and returns the caller's handle on it.
func (l *lease) handOut(start instant, length time.Duration) *Lock {
	lock := l.begin(start, length)
	if hook := l.r.cfg.hooks.Acquired; hook != nil {
		hook(l.r.event(l.engine, l.params.token, l.fence))
	}
	return lock
}

// giveUp ends an attempt that was not granted, for err. What lands from now on is released, and so is
// what it may have taken, unless the caller chose the token.
func (a *attempt) giveUp(ctx context.Context, err error) {
	a.state.become(refused)
	switch {
	case knownNotDone(err), a.params.callerToken:
	case node.Unreachable(err): // most likely nothing was sent, and the release is not either
		go a.undo(detached(ctx), "") //nolint:errcheck // it ends with its timeout
	default:
		_ = a.undo(ctx, "")
	}
}

// undo releases what an attempt has taken, and gives up its place in the queue. The caller waits for that
// while its ctx lasts; the release goes on without it. What cannot be reached ends with its TTL. With a token
// that the caller chose, only what was handed to the place is released.
func (a *attempt) undo(ctx context.Context, entry string) error {
	_, err := a.engine.strategy.release(ctx, &releaseParams{target: a.params.target, entry: entry, onlyHanded: a.params.callerToken})
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
	}
	if err != nil {
		return nil, wrap("adopt", key, err)
	}
	lock, err := e.adopt(ctx, r, token)
	return lock, wrap("adopt", key, err)
}

func (e *engine) adopt(ctx context.Context, r *request, token string) (*Lock, error) {
	a := &attempt{engine: e, r: r}
	a.params = acquireParams{
		target: r.target(token), ttl: r.ttl(), state: &a.state,
		replicas: r.cfg.replicas, replicaTimeout: r.cfg.replicaTimeout,
	}
	start := e.now()
	fence, err := e.strategy.adopt(ctx, &a.params)
	if err != nil {
		return nil, err
	}
	length := validity(a.params.ttl, r.cfg.drift)
	if e.now().since(start) >= length {
		return nil, errSlow
	}
	return (&lease{attempt: a, fence: fence}).handOut(start, length), nil
}

// Inspect asks the strategy.
func (e *engine) Inspect(ctx context.Context, key string) (Status, error) {
	r, err := e.request(ctx, key, nil)
	if err != nil {
		return Status{}, wrap("inspect", key, err)
	}
	p := r.target("")
	st, err := e.strategy.inspect(ctx, &p)
	st.Owner = ownerOf(st.Token)
	if st.Held {
		st.Holders = max(st.Holders, 1)
	}
	return st, wrap("inspect", key, err)
}

// fire calls a hook for a request that has no lock yet.
func (r *request) fire(e *engine, hook func(Event)) {
	if hook != nil {
		hook(r.event(e, r.cfg.token, 0))
	}
}

// event returns what hooks hear of a request.
func (r *request) event(e *engine, token string, fence uint64) Event {
	return Event{
		Strategy: e.strategy.name(), Key: r.key, Token: token, Owner: ownerOf(token), Fence: fence,
		Attempts: r.attempts, Elapsed: e.now().since(r.started),
	}
}
