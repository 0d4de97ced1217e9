package redlatch

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/line"
	"github.com/redlatch/redlatch/internal/rediserr"
	"github.com/redlatch/redlatch/internal/wire"
)

// An attempt asks for a lock with one token, and gives it back. A call or a line makes it. That of a
// line is named by the effects of its Machine, and guarded by lines.mu until it is granted or given
// up. Nothing changes it afterwards.
type attempt struct {
	engine  *engine
	id      identity
	request *request // of the call, or of the first caller of the line
	line    *keyLine // nil: of a call
	acquire params

	minted uint64 // the number that a fresh token has from the Mint; 0: of an adopted one

	nobodyWaits atomic.Bool // nobody waits for the grant any more
	stays       bool        // of a line: served or given up, so the token is used until its release has an answer

	// Of a line, too.
	number uint64          // of the token, for the Machine
	asked  clock.Instant   // when the newest acquire was sent
	ctx    context.Context //nolint:containedctx // of the caller for whom it was sent, for its values
	place  *place          // nil: it has none

	grant grant
	lease lease.Lease // once it is granted
}

// A place is the place of an attempt in the queue of Redis.
type place struct {
	claim   time.Duration // of the entry
	watch   lease.Watch   // of the entry
	message wire.HandOver // the newest one for the token
	arrived clock.Instant // when that message arrived
}

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

// newAttempt returns an attempt with a fresh token, of a call or of a line.
func (e *engine) newAttempt(r *request, w *keyLine) *attempt {
	token, minted := e.newToken(r.cfg)
	a := e.attemptWith(r, w, token)
	a.minted = minted
	return a
}

// attemptWith returns an attempt with a token.
func (e *engine) attemptWith(r *request, w *keyLine, token string) *attempt {
	a := &attempt{engine: e, id: e.identity(r, token), request: r, line: w}
	a.acquire = params{
		identity: &a.id, timeout: r.cfg.lease.Timeout, ttl: r.cfg.asked, cfg: r.cfg,
	}
	a.id.abandoned = &a.nobodyWaits
	a.lease.Init(a, &r.cfg.lease, w != nil && w.machine.Passes > 0)
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
		a.nobodyWaits.Store(true)
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

// grantOfClaim returns the grant of the newest message.
func (a *attempt) grantOfClaim() grant {
	p := a.place
	m, length := &p.message, clock.Validity(p.claim, a.request.cfg.grace)
	return grant{start: p.watch.Started(m.At, p.arrived), length: length, tick: m.Tick, handed: m.At}
}

// claimEnded reports whether nothing is left at now of the claim that the newest message has
// granted.
func (a *attempt) claimEnded(now clock.Instant) bool {
	if a.place == nil || a.place.message.Token == "" {
		return true
	}
	g := a.grantOfClaim()
	return a.over(&g, now)
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

// prepareLocked makes the acquire ready that a line asks for.
func (a *attempt) prepareLocked(m *moment, x *effect) {
	a.ctx, a.asked = x.Caller.Of.ctx, m.now
	m.asks = a.ctx
	if x.Entry == line.NoEntry {
		return
	}
	p := a.place
	if p == nil {
		p = &place{claim: a.acquire.ttl}
		dash := x.Entry == line.Dashed
		cfg := a.request.cfg
		if cfg.renew { // else the new owner does not extend the claim. A minimum hold outlasts a crash
			claim := clock.TTLFor(clock.Validity(wire.Claim(dash), 0), cfg.grace)
			p.claim = min(p.claim, max(claim, cfg.minHold))
		}
		a.acquire.entry = wire.Entry(p.claim, cfg.limit, dash, a.engine.inbox.Channel, a.id.token)
		p.watch.Sent(m.now)
		a.place = p
	}
	a.acquire.queued, a.acquire.waited = x.Again, x.Age // an earlier send does not refer to them
}

// hear handles the outcome of the acquire of a line.
func (a *attempt) hear(got reply) {
	w := a.line
	a.engine.refusedBy(got.holder, a.id.names, a.asked.Mono)
	m := a.engine.moment(clock.Now())
	var room effects
	out := room[:0]
	report := func() {}
	a.engine.lines.locked(func() {
		a.engine.lines.observeLocked(&m, m.now.Since(a.asked), got.err)
		w.factsLocked(&m)
		a.answered(got)
		if got.err == nil {
			if a.granted(a.asked, got); a.over(&a.grant, m.now) {
				got.err = errSlow
			}
		}
		if got.err == nil {
			if p := a.place; p != nil && a.acquire.queued && p.message.Token == "" && !w.machine.Confirms {
				w.untoldLocked(&m) // the look has found the key, and no message
			}
			out = w.machine.Granted(m.Facts, got.newEntry, out)
		} else {
			out = w.machine.NotGranted(m.Facts, a.outcomeLocked(&m, got), out)
			report = w.reportLocked(got.err)
		}
		w.settleLocked(&m, out)
	})
	w.carry(&m, out)
	report()
}

// reportLocked returns what calls Hooks.Trouble of the first caller with the error of an attempt. Those
// whose wait ends with the error report it themselves.
func (w *keyLine) reportLocked(err error) (report func()) {
	if head := w.machine.Head(); head != nil && !errors.Is(err, ErrNotAcquired) {
		attempts := head.Of.attempts + w.machine.News(head).Attempts
		if hook, trouble := w.engine.troubleOf(&head.Of.request, attempts, err); hook != nil {
			ctx := head.Of.ctx
			return func() { go hook(ctx, trouble) } // ends with the hook
		}
	}
	return func() {}
}

// outcomeLocked returns what the Machine must know of an acquire that was not granted.
func (a *attempt) outcomeLocked(m *moment, got reply) line.Outcome {
	w, err := a.line, got.err
	o := line.Outcome{
		Answer: line.Failed, Err: heldBy(a.id.key, got), Left: got.left, First: got.first, NewEntry: got.newEntry,
	}
	switch {
	case errors.Is(err, ErrNotAcquired):
		o.Answer = line.Refused
		h := wire.Parse(got.holder)
		o.Foreign = got.holder != "" && !h.HandsOn
		o.Moved = got.holder != "" && w.holder != "" && got.holder != w.holder
		w.holder = cmp.Or(got.holder, w.holder)
		if a.request.cfg.noQueue && h.Queues {
			a.engine.queued.note(a.id.lock, queuesFor)
			w.factsLocked(m)
		}
		if a.engine.inbox != nil && !h.Tells {
			w.untoldLocked(m)
		}
		if got.at != 0 && a.place != nil {
			a.place.watch.Told(a.asked, got.at)
		}
	case errors.Is(err, errSlow):
		o.Answer = line.Late
	case errors.Is(err, ErrNotReplicated):
		o.Answer = line.Unconfirmed
	case permanent(err):
		o.Answer = line.Permanent
	default:
		o.Opens = opensFirst(err)
	}
	o.Clean = !mayBeThere(got, err) &&
		(a.place == nil || o.Answer == line.Refused || errors.As(err, new(*rediserr.NotDone)))
	o.Ended = a.claimEnded(m.now)
	return o
}

// carried handles the outcome of a release that carried the acquire. If the release did not queue
// the entry, the line asks again.
func (a *attempt) carried(got reply) {
	w, err := a.line, got.err
	m := a.engine.moment(clock.Now())
	o := line.Outcome{Answer: line.Refused, Err: ErrNotAcquired}
	var room effects
	out := room[:0]
	a.engine.lines.locked(func() {
		w.factsLocked(&m)
		switch {
		case err != nil || got.at == 0:
			if err != nil && !errors.Is(err, ErrLost) {
				o.Answer, o.Err = line.Failed, err
			}
			out = w.machine.Changed(m.Facts, out)
		default:
			a.place.watch.Told(a.asked, got.at)
			if got.tick > 0 {
				a.place.message, a.place.arrived = wire.HandOver{Token: a.id.token, Tick: got.tick, At: got.at}, m.now
				out = w.machine.Message(m.Facts, a.number, false, out)
			}
		}
		o.Ended = a.claimEnded(m.now)
		out = w.machine.NotGranted(m.Facts, o, out)
		w.settleLocked(&m, out)
	})
	w.carry(&m, out)
}

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

// withdraw gives back a token that nobody waits for, and its entry.
func (a *attempt) withdraw() {
	b := a.releasing(a.ctx, clock.MonoNow(), 0)
	b.entry = a.acquire.entry
	a.engine.strategy.do(b.loan.lent(), toRelease, &b.params, b)
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
