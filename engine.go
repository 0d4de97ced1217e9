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
}

// newEngine returns the Locker that keeps its locks by s.
func newEngine(s strategy, opts []Option) (Locker, error) {
	cfg, err := defaults().with(opts)
	if err == nil && cfg.token != "" {
		err = invalid("WithToken(%q): it is for one call, not for a Locker", cfg.token)
	}
	if err == nil {
		err = s.check(&cfg)
	}
	if err != nil {
		return nil, wrap("new "+s.name(), "", err)
	}
	return &engine{strategy: s, cfg: &cfg, now: readClocks}, nil
}

// request is a call as the caller meant it: what all its attempts share.
type request struct {
	key      string // as the caller named it
	cfg      *config
	started  instant
	attempts int
}

// request checks what a caller asks for, before anything is sent.
func (e *engine) request(ctx context.Context, key string, opts []Option) (*request, error) {
	r := &request{key: key, cfg: e.cfg, started: e.now()}
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
	return r, e.strategy.checkKey(r.cfg.prefix+key, r.cfg)
}

// claim returns what to ask the strategy for. A token that was not chosen is a fresh one.
func (r *request) claim(token string) (claim, error) {
	c := claim{
		key: r.cfg.prefix + r.key, token: token, ttl: r.cfg.ttl, bound: r.cfg.bound(),
		chosen: token != "", fenced: r.cfg.fenced, serverTime: r.cfg.serverTime,
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
	lock, _, err := e.attempt(ctx, r)
	return lock, wrap("try lock", key, err)
}

// Lock attempts once and then waits its turn.
func (e *engine) Lock(ctx context.Context, key string, opts ...Option) (*Lock, error) {
	r, err := e.request(ctx, key, opts)
	if err != nil {
		return nil, wrap("lock", key, err)
	}
	lock, refusal, err := e.attempt(ctx, r)
	switch {
	case err == nil:
		return lock, nil
	case ctx.Err() != nil:
		return nil, wrap("lock", key, &gaveUp{ctx: ctxError(ctx)})
	case !errors.Is(err, ErrNotAcquired):
		return nil, wrap("lock", key, err)
	}
	lock, err = e.wait(ctx, r, refusal)
	return lock, wrap("lock", key, err)
}

// attempt asks for the lock once. Every attempt has a token of its own, unless the caller chose
// one: what an earlier attempt left behind may be given back at any time. A grant that comes when
// nothing is left of its lease is no grant.
func (e *engine) attempt(ctx context.Context, r *request) (*Lock, grant, error) {
	r.attempts++
	c, err := r.claim(r.cfg.token)
	if err != nil {
		return nil, grant{}, err
	}
	l := &lease{engine: e, cfg: r.cfg, key: r.key, claim: c}
	l.claim.life = &l.life
	start := e.now()
	g, err := e.strategy.acquire(ctx, &l.claim)
	length := validity(c.ttl, r.cfg.drift)
	if err == nil && e.now().since(start) >= length {
		err = errSlow
	}
	if err != nil {
		if !surelyNot(err) && !c.chosen {
			e.undo(ctx, &l.claim)
		}
		return nil, g, err
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

// undo gives back what an attempt of unknown outcome may have taken. The caller waits for that
// while its ctx lasts; the clean-up goes on without it and ends with its own bound.
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
	c, err := r.claim(token)
	if err != nil {
		return nil, err
	}
	l := &lease{engine: e, cfg: r.cfg, key: r.key, claim: c}
	l.claim.life = &l.life
	start := e.now()
	if err := e.strategy.extend(ctx, &l.claim); err != nil {
		return nil, err
	}
	if c.fenced {
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
	length := validity(c.ttl, r.cfg.drift)
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
	st, err := e.strategy.inspect(ctx, &claim{key: r.cfg.prefix + key, bound: r.cfg.bound(), fenced: r.cfg.fenced, serverTime: r.cfg.serverTime})
	return st, wrap("inspect", key, err)
}

// event returns what hooks hear of a request.
func (r *request) event(e *engine, token string, fence uint64) Event {
	return Event{
		Strategy: e.strategy.name(), Key: r.key, Token: token, Fence: fence,
		Attempts: r.attempts, Elapsed: e.now().since(r.started),
	}
}
