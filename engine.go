package redlatch

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/line"
	"github.com/redlatch/redlatch/internal/rediserr"
	"github.com/redlatch/redlatch/internal/wire"
)

// The way of a call. A mutex is held only where "- name ->" stands: that of line.Lines, unless another one is
// named.
//
//	Lock            engine.call -> lock -> Lines.Join - Machine.Join -> Ask, if nothing is under way
//	                The goroutine of the caller waits in lock for served, for news and for its ctx.
//	the acquire     strategy.do -> Node.Post - Node.mu -> a courier sends it, and calls back
//	                attempt.hear -> Attempt.Heard - Machine.Granted or NotGranted -> Serve, or Look, Tell, Fail and the like
//	a hand-over     Inbox.run receives the message -> engine.deliver -> Attempt.Message - Machine.Message -> Serve
//	the grant       attempt.Serve -> grantLock -> Lease.Begin - Lease.mu -> the caller has its Lock
//	a renewal       Lease.renew - Lease.mu: core.tick -> send -> attempt.Extend -> Lease.Extended
//	Unlock          Handle.Unlock - Lease.mu: core.unlock -> attempt.Pass -> Attempt.Unlock - Machine.Unlock
//	                -> Serve the next caller, or Give: attempt.Release sends the release, which may carry the next acquire
//	TryLock, Adopt  engine.call -> attempt.make, or adopt, without a line
//	a reader        joinReaders -> Lease.Join - Lease.mu: core.join, without a command, if a reader was
//	                granted the key just now
//
// Three goroutines take part: that of the caller, a courier of the node, and that of the inbox. The
// mutexes are those of line.Lines, Lease, tokens, newestLeases, tokenOps of a quorum, Node.mu and
// Inbox.mu. None is locked under another.

// errSlow is the error of a grant that came when nothing was left of its lease.
var errSlow = fmt.Errorf("%w: the grant took longer than the lease lasts", ErrLost)

// engine is the Locker of every strategy: it makes tokens and attempts, handles their outcomes, and
// cleans up.
//
// Each mutex guards the fields below it. No command runs under one.
type engine struct {
	traits
	strategy strategy
	cfg      *config
	*live
}

// live has what changes while a Locker is used. An engine has it behind a pointer, since fmt looks
// into one that is in an unexported field of a caller's struct, without a lock.
type live struct {
	mint     *wire.Mint
	twin     *engine // of readers and writers: the other side
	lines    *line.Lines
	tokens   tokens
	troubles sync.Map // when Hooks.Trouble was last called for a cause
	newest   newestLeases
	pending  pending // calls of TryLock, and keys that will be handed on
}

func newEngine(s strategy, h traits, opts []Option) (Locker, error) {
	defaults := defaults()
	defaults.limit = h.limit
	cfg, err := configured(s, &defaults, opts)
	if err == nil && cfg.limited {
		err = invalid("WithLimit(%d): an option of a call, not of its Locker", cfg.limit)
	}
	if err != nil {
		return nil, wrap("new "+string(h.name), "", err)
	}
	cfg.line = h.lineOptions(cfg)
	e := &engine{traits: h, strategy: s, cfg: cfg, live: &live{
		mint: wire.NewMint(), lines: line.New(h.inbox), tokens: tokens{used: make(map[uint64]*attempt)}, newest: newestLeases{byKey: make(map[string]*attempt)},
	}}
	for i, n := range e.nodes {
		n.Trouble = func(err error) { e.reportNode(e.names[i], err) }
	}
	if e.inbox != nil {
		e.inbox.Deliver, e.inbox.Changed, e.inbox.Degraded = e.deliver, e.changed, e.reportDegraded
	}
	return e, nil
}

// configured returns a config changed by opts, if s supports that.
func configured(s strategy, base *config, opts []Option) (*config, error) {
	cfg := new(config)
	*cfg = *base
	err := cfg.apply(opts)
	if err == nil {
		err = s.adapt(cfg)
	}
	if err == nil {
		err = cfg.checkGrace()
	}
	cfg.derive()
	return cfg, err
}

// request is a call of a Locker.
type request struct {
	loan     loan // of the ctx of the call
	names    names
	cfg      *config
	started  clock.Instant
	attempts int // by this process, while the call lasts. Those of its line are added when it leaves the line
}

// check fills r with the arguments of a call, and checks them before anything is sent.
func (e *engine) check(ctx context.Context, r *request, key string, opts []Option) (err error) {
	r.names, r.cfg, r.started = names{key: key}, e.cfg, clock.Now()
	switch {
	case ctx == nil:
		return invalid("ctx is nil")
	case key == "":
		return invalid("key is empty")
	case len(opts) > 0:
		r.cfg, err = configured(e.strategy, e.cfg, opts)
		r.cfg.line = e.lineOptions(r.cfg)
	}
	if err == nil {
		r.names.lock, err = e.strategy.keyOf(r.cfg.prefix, key)
	}
	if err == nil && ctx.Err() != nil {
		err = &rediserr.NotDone{Err: ctxError(ctx)}
	}
	return err
}

// newToken returns a fresh token and its number. A writer's token has a mark.
func (e *engine) newToken(cfg *config) (token string, number uint64) {
	manner := wire.Queueing
	switch {
	case e.inbox != nil && e.inbox.Mute():
		manner = wire.Mute
	case cfg.noQueue:
		manner = wire.Polling
	}
	token, number = e.mint.Token(cfg.owner, manner, len(cfg.prefix))
	if e.writes {
		token = wire.WriterMark + token
	}
	return token, number
}

// identity returns the identity of an operation on the key of r.
func (e *engine) identity(r *request, token string) identity {
	if r.names.at.key == nil {
		r.names.at = e.strategy.wordsOf(r.cfg.prefix, r.names.lock)
	}
	return identity{names: &r.names, token: token}
}

// String describes the lines of a Locker, for the report of a bug: it is what fmt prints of the
// Locker. It shows no token.
func (e *engine) String() string { return string(e.name) + e.lines.String() }

// Format prints what String returns, whatever the verb is.
func (e *engine) Format(f fmt.State, verb rune) {
	_, _ = fmt.Fprintf(f, fmt.FormatString(f, verb), e.String())
}

func (e *engine) TryLock(ctx context.Context, key string, opts ...Option) (*Lock, error) {
	return e.call(ctx, "try lock", new(request), key, opts, e.try)
}

func (e *engine) Lock(ctx context.Context, key string, opts ...Option) (*Lock, error) {
	w := new(waiter)
	return e.call(ctx, "lock", &w.request, key, opts, func(ctx context.Context, _ *request) (*Lock, error) {
		return e.lock(ctx, w)
	})
}

// Adopt proves the token by extending the lock.
func (e *engine) Adopt(ctx context.Context, key string, token Token, opts ...Option) (*Lock, error) {
	return e.call(ctx, "adopt", new(request), key, opts, func(ctx context.Context, r *request) (*Lock, error) {
		return e.adopt(ctx, r, string(token))
	})
}

// call makes a call, and calls Hooks.Acquired or Hooks.Trouble. A hook that panics leaves no lock.
func (e *engine) call(
	ctx context.Context, op string, r *request, key string, opts []Option,
	do func(context.Context, *request) (*Lock, error),
) (*Lock, error) {
	if err := e.check(ctx, r, key, opts); err != nil {
		return nil, wrap(op, key, err)
	}
	defer r.loan.over()
	lock, err := do(r.loan.lend(ctx), r)
	e.reportFailure(ctx, r, err)
	if hook := r.cfg.hooks.Acquired; hook != nil && lock != nil {
		event := Event{Fence: lock.Fence(), Attempts: r.attempts, Elapsed: clock.Now().Since(r.started)}
		guarded(func() { attemptOf(lock.handle).fire(ctx, hook, event) }, func() { lock.discard(ctx) })
	}
	return lock, wrap(op, key, err)
}

// An answer is where the reply to one operation arrives. It is not used again.
type answer struct {
	reply reply         // known once came is closed
	came  chan struct{} // closed by the first reply
	taken atomic.Bool   // by the first reply. Later ones are dropped
}

func (a *answer) hear(got reply) {
	if a.taken.CompareAndSwap(false, true) {
		a.reply = got
		close(a.came)
	}
}

// then calls do with the reply, in a goroutine that ends with the operation.
func (a *answer) then(do func(reply)) {
	go func() { <-a.came; do(a.reply) }()
}

// run runs an operation that begins now, and waits for its reply or for the end of ctx. If ctx ends
// first, the operation goes on, and late is where its reply arrives. Otherwise late is nil.
func (e *engine) run(ctx context.Context, now clock.Mono, op op, p *params) (got reply, late *answer) {
	a := &answer{came: make(chan struct{})}
	e.strategy.do(ctx, op, p, a)
	select {
	case <-a.came:
		return a.reply, nil
	case <-ctx.Done():
		return reply{err: &gaveUp{ctxError(ctx), e.strategy.trouble(op, p, clock.MonoNow().Sub(now))}}, a
	}
}

// try makes an attempt. If it split the votes of a quorum, try repeats it within the op timeout. So
// if several processes attempt at one instant, one of them is granted the lock.
func (e *engine) try(ctx context.Context, r *request) (*Lock, error) {
	if lock := e.joinReaders(ctx, r); lock != nil {
		return lock, nil
	}
	for pause := r.cfg.shortest; ; pause = min(2*pause, r.cfg.longest) {
		lock, split, err := e.newAttempt(r, false).make(ctx)
		if !split {
			return lock, err
		}
		if within := r.cfg.timeout() - clock.Now().Since(r.started); within < pause || !sleep(ctx, rand.N(pause)) {
			return nil, err
		}
	}
}

func (e *engine) adopt(ctx context.Context, r *request, token string) (*Lock, error) {
	switch h := wire.Parse(token); {
	case token == "":
		return nil, invalid("token is empty")
	case h.Kept:
		return nil, errNotOurs // nobody holds the key
	case e.reads && h.Writes, e.writes && !h.Writes:
		return nil, errNotOurs // it is that of the other side
	case e.reads:
		return e.adoptReader(ctx, r, token)
	}
	a := e.attemptWith(r, false, token)
	a.lease.Reveal()
	e.spares(token)
	start := clock.Now()
	got, _ := e.run(ctx, start.Mono, toAdopt, &a.acquire)
	if got.err != nil {
		return nil, got.err
	}
	return a.begin(ctx, start, got)
}

func (e *engine) Inspect(ctx context.Context, key string) (Status, error) {
	r := new(request)
	if err := e.check(ctx, r, key, nil); err != nil {
		return Status{}, wrap("inspect", key, err)
	}
	defer r.loan.over()
	got := e.inspect(r.loan.lend(ctx), r)
	if got.err != nil {
		return Status{}, wrap("inspect", key, got.err)
	}
	var st Status
	if got.seen != nil {
		st = got.seen.status
	}
	h := wire.Parse(string(st.Token))
	st.Owner, st.Since, st.Kept = h.Owner, h.MadeAt, h.Kept
	switch {
	case h.Kept:
		st.Held, st.Token, st.Holders = false, "", 0
	case st.Held:
		st.Holders = max(st.Holders, 1)
	}
	return st, nil
}

func (e *engine) inspect(ctx context.Context, r *request) reply {
	id := e.identity(r, "")
	got, _ := e.run(ctx, r.started.Mono, toInspect, &params{identity: &id, timeout: r.cfg.timeout()})
	if got.err == nil {
		holder := ""
		if got.seen != nil {
			holder = string(got.seen.status.Token)
		}
		e.sees(holder, r.names.lock, r.started.Mono)
	}
	return got
}

// refused calls a hook, if there is one, with a refusal.
func (r *request) refused(ctx context.Context, e *engine, hook func(context.Context, Event), n news) {
	if hook != nil {
		hook(ctx, r.event(e, n.attempts, n.err))
	}
}

// event describes a call that has no lock yet, after a number of attempts.
func (r *request) event(e *engine, attempts int, err error) Event {
	return Event{
		Strategy: e.name, Key: r.names.key, Owner: r.cfg.owner, Err: err,
		Attempts: attempts, Elapsed: clock.Now().Since(r.started),
	}
}
