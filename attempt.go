package redlatch

import (
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/line"
	"github.com/redlatch/redlatch/internal/rediserr"
)

// An attempt asks for a lock with one token, and gives it back. A call or a line makes it. For a line, it is the
// line.Asker of what the line knows of it.
type attempt struct {
	engine  *engine
	id      identity
	request *request // of the call, or of the first caller of the line
	inLine  line.Attempt
	acquire params

	minted uint64 // the number that a fresh token has from the Mint; 0: of an adopted one

	grant grant
	lease lease.Lease // once it is granted
	back  *release    // of Unlock, if the turn was not passed on

	searched bool // for ghosts, since it waits for long enough to look: a refusal names only one holder
}

// attemptBy returns the attempt of which a line knows.
func attemptBy(a *line.Attempt) *attempt { return a.By.(*attempt) }

// A release gives a token back, once.
type release struct {
	params
	of   *attempt
	loan loan     // of the ctx of the call, for its values
	asks *attempt // of the line, whose acquire the release carries; nil: none
	answer
}

// hear takes the reply to the release, and to the acquire that it carries.
func (b *release) hear(got reply) {
	if b.asks != nil {
		b.asks.carried(got)
	}
	if b.keep > 0 && got.err != nil && !errors.Is(got.err, ErrLost) { // the node sends it again
		b.of.engine.forgetsSpared(b.of)
	} else {
		b.of.engine.forgets(b.of)
	}
	own := b.of.minted != 0 && b.of.request != nil // neither adopted nor a ghost
	if e := b.of.engine; e.inbox != nil && own && b.keep == 0 && got.err == nil {
		e.tokens.noteReleased(b.of)
	}
	b.answer.hear(got)
}

// A grant says when a lease began, and for how long it is trusted at first.
type grant struct {
	start   clock.Instant
	length  time.Duration
	tick    uint64        // of the fences; 0: there are none
	handed  clock.Redis   // when the key was handed over; 0: it was not, or that is unknown
	recheck time.Duration // when to check that the key is still there; 0: never
}

// newAttempt returns an attempt with a fresh token, of a call or of a line. passable says that the lock may be passed on.
func (e *engine) newAttempt(r *request, passable bool) *attempt {
	token, minted := e.newToken(r.cfg)
	a := e.attemptWith(r, passable, token)
	a.minted = minted
	return a
}

// attemptWith returns an attempt with a token.
func (e *engine) attemptWith(r *request, passable bool, token string) *attempt {
	a := &attempt{engine: e, id: e.identity(r, token), request: r}
	a.acquire = params{
		identity: &a.id, timeout: r.cfg.lease.Timeout, ttl: r.cfg.asked, cfg: r.cfg,
	}
	a.inLine.By, a.id.abandoned = a, &a.inLine.NobodyWaits
	a.lease.Init(a, &r.cfg.lease, passable)
	return a
}

// make makes a single attempt for a call. If the outcome is unknown, or ctx ends first, the token
// is released.
func (a *attempt) make(ctx context.Context) (lock *Lock, split bool, err error) {
	start := a.request.started
	if a.request.attempts++; a.request.attempts > 1 {
		start = clock.Now()
	}
	a.engine.uses(a)
	under := &a.engine.pending
	under.begin()
	got, late := a.engine.run(ctx, start.Mono, toAcquire, &a.acquire)
	if late == nil {
		defer under.done()
	} else {
		a.inLine.NobodyWaits.Store(true)
		late.then(func(got reply) { //nolint:contextcheck // the call has returned
			defer under.done()
			a.answered(got)
			if mayBeThere(got, got.err) { // the call has returned
				a.giveBack(a.releasing(context.Background(), clock.MonoNow(), 0))
			} else {
				a.engine.forgets(a)
			}
		})
		return nil, false, got.err
	}
	a.answered(got)
	if got.again {
		got.err = errBehind
	}
	a.engine.refusedBy(got.holder, a.id.names, start.Mono) //nolint:contextcheck // nobody waits for the release
	err = heldBy(a.id.key, got)
	if err == nil {
		lock, err = a.begin(ctx, start, got)
	}
	if err != nil {
		a.failed(ctx, got, err)
	}
	return lock, got.split, err
}

// errBehind is the error of a call that was not refused by anybody: its time was over before the entries
// of waiters that have ended had left the queue.
var errBehind error = outage{&rediserr.NotDone{
	Err: errors.New("waiters that have ended are still being removed from its queue"),
}}

// failed releases the token of a call that has no lock, if it may be in Redis. err is nil if it was
// granted.
func (a *attempt) failed(ctx context.Context, got reply, err error) {
	if mayBeThere(got, err) {
		a.undo(ctx, err)
	} else {
		a.engine.forgets(a)
	}
}

// begin begins the lease of a request that was sent at start, and returns the handle for the
// caller. It fails with errSlow if nothing of the lease is left.
func (a *attempt) begin(ctx context.Context, start clock.Instant, got reply) (*Lock, error) {
	now := clock.Now()
	a.granted(start, got)
	if a.over(&a.grant, now) {
		return nil, errSlow
	}
	return a.grantLock(ctx, a.request, now, 0), nil
}

// granted notes the grant of a reply to a command that was sent at start.
func (a *attempt) granted(start clock.Instant, got reply) {
	a.grant = grant{
		start: start, length: clock.Validity(a.acquire.ttl, a.request.cfg.grace),
		tick: got.tick, recheck: got.recheckAfter,
	}
}

// over reports whether nothing is left at now of a lease, or of the time of WithMaxHold.
func (a *attempt) over(g *grant, now clock.Instant) bool {
	held, most := now.Since(g.start), a.request.cfg.maxHold
	return held >= g.length || most > 0 && held >= most
}

// mayBeThere reports whether an attempt may have left its token in Redis, or may do so. err is nil
// if it was granted.
func mayBeThere(got reply, err error) bool { return got.resent || !knownNotDone(err) }

// answered notes the reply to the acquire. If it was resent, an earlier send may be carried out
// until its timeout has passed.
func (a *attempt) answered(got reply) {
	if got.resent {
		a.id.resentUntil = clock.MonoNow().Add(a.acquire.timeout + a.request.cfg.replicaTimeout)
	}
}

// Token returns the token.
func (a *attempt) Token() string { return a.id.token }

// Acquire sends the acquire of a line.
func (a *attempt) Acquire(ctx context.Context) {
	a.queue()
	a.engine.strategy.do(ctx, toAcquire, &a.acquire, a)
}

// queue notes what the acquire of a line says of the queue. From now on the token is used.
func (a *attempt) queue() {
	entry, queued, waited := a.inLine.Queued()
	if a.acquire.entry == "" && entry != "" { // an earlier send may still refer to it
		a.acquire.entry = entry
	}
	a.acquire.queued, a.acquire.waited = queued, waited
	a.engine.uses(a)
}

// hear hands the outcome of the acquire of a line to the line.
func (a *attempt) hear(got reply) {
	asked, now := a.inLine.Asked(), clock.Now()
	a.engine.refusedBy(got.holder, a.id.names, asked.Mono)
	a.answered(got)
	if got.err == nil {
		if a.granted(asked, got); a.over(&a.grant, now) {
			got.err = errSlow
		}
	}
	if !a.searched && a.acquire.queued && errors.Is(got.err, ErrNotAcquired) && a.engine.maySearch(now.Mono) {
		a.searched = true
		a.engine.searchGhosts(a.id.names)
	}
	a.inLine.Heard(a.heard(got), now)
}

// heard returns what a line must know of the outcome of an acquire.
func (a *attempt) heard(got reply) line.Reply {
	if got.err == nil {
		return line.Reply{Answer: line.Held, NewEntry: got.newEntry}
	}
	r := line.Reply{
		Err: heldBy(a.id.key, got), At: got.at, NewEntry: got.newEntry,
		Left: got.left, Holder: got.holder, First: got.first,
		Clean: !mayBeThere(got, got.err), NotDone: errors.As(got.err, new(*rediserr.NotDone)),
	}
	switch err := got.err; {
	case errors.Is(err, ErrNotAcquired):
		r.Answer = line.Refused
	case errors.Is(err, errSlow):
		r.Answer = line.Late
	case errors.Is(err, ErrNotReplicated):
		r.Answer = line.Unconfirmed
	case permanent(err):
		r.Answer = line.Permanent
	default:
		r.Answer, r.Opens = line.Failed, opensFirst(err)
	}
	return r
}

// carried hands the outcome of an acquire that a release has carried to the line.
func (a *attempt) carried(got reply) {
	r := line.Reply{Answer: line.Refused, Err: ErrNotAcquired, At: got.at, Tick: got.tick}
	if got.err != nil {
		if r.At = 0; !errors.Is(got.err, ErrLost) {
			r.Answer, r.Err = line.Failed, got.err
		}
	}
	a.inLine.Carried(r, clock.Now())
}

// Release gives back a token that was served. See unlock.
func (a *attempt) Release(ctx context.Context, now clock.Mono, keep time.Duration, next *line.Attempt) {
	a.back = a.releasing(ctx, now, keep)
	if next != nil {
		a.back.asks = attemptBy(next)
		a.back.asks.queue()
	}
	a.giveBack(a.back)
}

// unlock ends the turn, or a permit, that its holder gives back with a release that begins now. It
// returns nil if the turn was passed on, and no release was sent.
func (a *attempt) unlock(ctx context.Context, now clock.Instant, passable bool, keep time.Duration) (sent *release) {
	if a.inLine.Unlock(ctx, now, passable, keep) {
		return nil
	}
	sent, a.back = a.back, nil // it knows the attempt that it carries, and so on
	return sent
}

// Serve gives the lock to a call, see line.Asker.
func (a *attempt) Serve(
	ctx context.Context, to line.Waiter, now clock.Instant, pass int, claim line.Claim, attempts int,
) {
	r := to.(*waiter)
	if a.engine.reads && pass > 0 {
		k := new(Lock)
		a.lease.Seat(ctx, &k.handle, &r.cfg.lease, now)
		r.serve(k, nil, attempts)
		return
	}
	if claim.Length > 0 {
		a.grant = grant{start: claim.Start, length: claim.Length, tick: claim.Tick, handed: claim.Handed}
	}
	r.serve(a.grantLock(ctx, &r.request, now, pass), nil, attempts)
}

// Expect says that a seat of the lease will be taken.
func (a *attempt) Expect() { a.lease.Expect() }

// Unused says that nothing is left in Redis of the token.
func (a *attempt) Unused() { a.engine.forgets(a) }

// undo releases the token of an attempt that failed with err, or whose caller has left, and waits
// for that until ctx ends. If Redis cannot be reached it does not wait: the key ends with its TTL.
func (a *attempt) undo(ctx context.Context, err error) {
	b := a.releasing(ctx, clock.MonoNow(), 0)
	defer b.loan.over()
	a.giveBack(b)
	if rediserr.Unreachable(err) {
		return
	}
	select {
	case <-b.came:
	case <-ctx.Done():
	}
}

// releasing returns a release of the token, which begins now. It uses ctx until its loan is over.
func (a *attempt) releasing(ctx context.Context, now clock.Mono, keep time.Duration) *release {
	p := params{identity: &a.id, timeout: a.acquire.timeout, keep: keep, began: now}
	b := &release{params: p, of: a, answer: answer{came: make(chan struct{})}}
	b.loan.lend(ctx)
	return b
}

// Withdraw gives back a token that nobody waits for, and its entry.
func (a *attempt) Withdraw(ctx context.Context) {
	b := a.releasing(ctx, clock.MonoNow(), 0)
	b.entry = a.acquire.entry
	a.engine.strategy.do(b.loan.lent(), toRelease, &b.params, b) //nolint:contextcheck // the loan lends ctx
}

// giveBack gives back a token that was granted, or that may have been granted to a call.
func (a *attempt) giveBack(b *release) {
	if a.id.resentUntil != 0 { // an earlier send of the acquire may have queued the entry
		b.entry = a.acquire.entry
	}
	if b.asks != nil {
		b.next, b.waited = b.asks.acquire.entry, b.asks.acquire.waited
	}
	a.engine.strategy.do(b.loan.lent(), toRelease, &b.params, b)
}
