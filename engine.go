package redlatch

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
)

// errSlow says that a grant arrived when nothing was left of its lease. It was given back.
var errSlow = &both{ErrLost, errors.New("the grant took longer than the lease lasts")}

// engine is the Locker of every strategy: tokens, attempts and their three outcomes, clean-up.
type engine struct {
	strategy strategy
	cfg      *config
	now      func() instant // readClocks but in tests
	turns    turns
	lobby    *lobby // nil: waiters poll
}

// newEngine returns the Locker that keeps its locks by s.
func newEngine(s strategy, opts []Option) (Locker, error) {
	cfg, err := defaults().with(opts)
	if err == nil && cfg.token != "" {
		err = invalid("WithToken(%q): it is for one call, not for a Locker", cfg.token)
	}
	if err == nil {
		err = cfg.servedBy(s)
	}
	if err != nil {
		return nil, wrap("new "+s.name(), "", err)
	}
	e := &engine{strategy: s, cfg: &cfg, now: readClocks}
	if s, ok := s.(handsOn); ok && s.subscription() != nil {
		e.lobby = newLobby(e, s.subscription())
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
	end      error // of ctx, where the last attempt came to nothing but that, or to a refusal
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
			err = cfg.servedBy(e.strategy)
		}
		if err != nil {
			return r, err
		}
		r.cfg = &cfg
	}
	r.place, err = e.strategy.place(r.cfg.prefix + key)
	return r, err
}

// claim returns what to ask the strategy for. A token that was not chosen is a fresh one.
func (r *request) claim(token string) (claim, error) {
	c := claim{
		place: r.place, token: token, ttl: r.cfg.ttl, bound: r.cfg.bound(),
		chosen: token != "", fenced: r.cfg.fenced, serverTime: r.cfg.serverTime,
		replicas: r.cfg.replicas, replicaTimeout: r.cfg.replicaTimeout,
	}
	if r.cfg.maxHold > 0 {
		c.ttl = min(c.ttl, ttlFor(r.cfg.maxHold, r.cfg.drift))
	}
	if !c.chosen {
		id, err := uuid.NewRandom()
		if err != nil {
			return c, &undone{err}
		}
		c.token = id.String()
	}
	return c, nil
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
	if e.lobby != nil && e.lobby.subscription.stands() {
		lock, err := e.queue(ctx, r)
		return lock, wrap("lock", key, err)
	}
	lock, refusal, err := e.once(ctx, r)
	switch {
	case err == nil:
		return lock, nil
	case r.end != nil && !errors.As(err, new(*cutShort)):
		return nil, wrap("lock", key, &gaveUp{ctx: ctxError(ctx)})
	case !errors.Is(err, ErrNotAcquired):
		return nil, wrap("lock", key, err)
	}
	r.fire(e, r.cfg.hooks.Waiting)
	if e.lobby != nil {
		lock, err = e.queue(ctx, r)
	} else {
		lock, err = e.poll(ctx, r, refusal)
	}
	return lock, wrap("lock", key, err)
}

// once makes a single attempt. What a failed one may have left is given back.
func (e *engine) once(ctx context.Context, r *request) (*Lock, grant, error) {
	l, err := e.lease(r, r.cfg.token)
	if err != nil {
		return nil, grant{}, err
	}
	lock, g, err := l.attempt(ctx, r, "")
	if err != nil {
		l.giveUp(ctx, err)
	}
	return lock, g, err
}

// lease returns a lease that is yet to be granted, for a token or, if that is empty, a fresh one.
func (e *engine) lease(r *request, token string) (*lease, error) {
	c, err := r.claim(token)
	l := &lease{engine: e, cfg: r.cfg, key: r.key, claim: c}
	l.claim.life = &l.life
	return l, err
}

// attempt asks for the lock once, and for a place in the queue if there is an entry. A grant that
// comes when nothing is left of its lease is no grant. An error that is not surelyNot says that
// the lock may have been taken: ask again with this lease, or give it up.
func (l *lease) attempt(ctx context.Context, r *request, entry string) (*Lock, grant, error) {
	r.attempts++
	c := &l.claim
	if entry != "" {
		queueing := l.claim
		queueing.entry, queueing.placed = entry, r.attempts > 1
		c = &queueing
	}
	start := l.engine.now()
	g, err := l.engine.strategy.acquire(ctx, c)
	r.end = nil
	if end := ctx.Err(); errors.Is(err, end) || errors.Is(err, ErrNotAcquired) {
		r.end = end
	}
	length := validity(c.ttl, r.cfg.drift)
	switch {
	case err != nil:
		return nil, g, err
	case l.engine.now().since(start) >= length:
		return nil, g, errSlow
	}
	l.fence = g.fence
	return l.handOut(r, start, length, g.lookAt), g, nil
}

// handOut starts the lease and returns the caller's handle on it.
func (l *lease) handOut(r *request, start instant, length, lookAt time.Duration) *Lock {
	lock := l.begin(start, length, lookAt)
	if hook := r.cfg.hooks.Acquired; hook != nil {
		hook(r.event(l.engine, l.claim.token, l.fence))
	}
	return lock
}

// giveUp ends a lease that was not granted, for err. What lands from now on is undone, and so is
// what an attempt of unknown outcome may have taken, unless the caller chose the token.
func (l *lease) giveUp(ctx context.Context, err error) {
	l.life.state.Store(lifeRefused)
	if !surelyNot(err) && !l.claim.chosen {
		l.engine.undo(ctx, &l.claim)
	}
}

// undo releases a claim that was given up. The caller waits for that while its ctx lasts; the
// clean-up goes on without it and ends with its own bound.
func (e *engine) undo(ctx context.Context, c *claim) {
	cleaned := make(chan struct{})
	go func() {
		defer close(cleaned)
		_ = e.strategy.release(detached(ctx), c) // what cannot be reached ends with its TTL
	}()
	select {
	case <-cleaned:
	case <-ctx.Done():
	}
}

// Adopt proves the token by extending the lock.
func (e *engine) Adopt(ctx context.Context, key, token string, opts ...Option) (*Lock, error) {
	r, err := e.request(ctx, key, opts)
	switch {
	case err != nil:
	case token == "":
		err = invalid("token is empty")
	case r.cfg.token != "" && r.cfg.token != token:
		err = invalid("WithToken(%q): Adopt was given another token", r.cfg.token)
	}
	if err != nil {
		return nil, wrap("adopt", key, err)
	}
	lock, err := e.adopt(ctx, r, token)
	return lock, wrap("adopt", key, err)
}

func (e *engine) adopt(ctx context.Context, r *request, token string) (*Lock, error) {
	l, err := e.lease(r, token)
	if err != nil {
		return nil, err
	}
	start := e.now()
	if err := e.strategy.extend(ctx, &l.claim); err != nil {
		return nil, err
	}
	if l.claim.fenced {
		// The counter is this grant's for as long as the token holds the key.
		st, err := e.strategy.inspect(ctx, &l.claim)
		switch {
		case err != nil:
			return nil, err
		case st.Token != token:
			return nil, ErrLost
		}
		l.fence = st.Fence
	}
	length := validity(l.claim.ttl, r.cfg.drift)
	if e.now().since(start) >= length {
		return nil, errSlow
	}
	return l.handOut(r, start, length, 0), nil
}

// Inspect asks the strategy.
func (e *engine) Inspect(ctx context.Context, key string) (Status, error) {
	r, err := e.request(ctx, key, nil)
	if err != nil {
		return Status{}, wrap("inspect", key, err)
	}
	c := claim{place: r.place, bound: r.cfg.bound(), fenced: r.cfg.fenced, serverTime: r.cfg.serverTime}
	st, err := e.strategy.inspect(ctx, &c)
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
		Strategy: e.strategy.name(), Key: r.key, Token: token, Fence: fence,
		Attempts: r.attempts, Elapsed: e.now().since(r.started),
	}
}
