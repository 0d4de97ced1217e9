package redlatch

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/inbox"
	core "github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/line"
	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/tokens"
)

// An attempt asks for a lock with one token, and gives it back. A call makes one, or a line does:
// the effects of its Machine name the attempt then, and lines.mu guards it until it is granted or
// given up. Nothing changes it afterwards but its release.
type attempt struct {
	*engine
	identity
	r       *request // of the call, or of the first caller of the line
	line    *keyLine // nil: of a call
	acquire params

	nobodyWaits atomic.Bool // for the grant, any more
	discounted  bool        // from the readers of the cohort, whose mutex guards it

	// Of a line.
	number uint64          // of the token
	asked  clock.Instant   // when the newest acquire was sent
	ctx    context.Context //nolint:containedctx // of the caller for whom it was sent, for its values
	place  *place          // nil: it has none

	back   release
	lease  lease   // once it is granted
	cohort *cohort // that has the token; nil: this attempt alone has it
}

// A place is that of an attempt in the queue of Redis.
type place struct {
	queueing
	claim   time.Duration // of the entry
	watch   core.Watch    // of the entry
	message inbox.Grant   // the newest that has handed the key to the token
}

// A release gives a token back. It begins as that of a Give which nobody waits for.
type release struct {
	params
	ctx  context.Context //nolint:containedctx // for its values
	done func(reply)     // gets the outcome; nil: nobody waits for it
	pair *attempt        // whose acquire it carries; nil: none
}

// hands reports whether the holder gives the key back for others.
func (b *release) hands() bool { return b.done != nil && b.keep == 0 }

// A grant says when a lease began, and for how long it is trusted at first.
type grant struct {
	start   clock.Instant
	length  time.Duration
	tick    uint64        // of the fences; 0: there are none
	recheck time.Duration // when to check that the key is still there; 0: never
}

// over reports whether nothing is left of the lease.
func (g *grant) over(now clock.Instant) bool { return now.Since(g.start) >= g.length }

// newAttempt returns an attempt of a call, or of a line.
func (e *engine) newAttempt(r *request, w *keyLine, token string) *attempt {
	a := &attempt{engine: e, identity: e.identity(r, token), r: r, line: w}
	a.acquire = params{
		identity: &a.identity, timeout: r.cfg.lease.Timeout, ttl: r.cfg.asked, ttlMS: r.cfg.askedMS,
		confirm: &r.cfg.replication,
	}
	a.unwanted, a.lease.attempt = &a.nobodyWaits, a
	a.lease.core.Config, a.lease.core.Passes = &r.cfg.lease, w != nil && w.Passes > 0
	return a
}

// make makes a single attempt for a call. If the outcome is unknown, or ctx ends first, the token
// is released.
func (a *attempt) make(ctx context.Context) (lock *Lock, split bool, err error) {
	a.r.attempts++
	start := clock.Now()
	got, abandoned := a.run(ctx, toAcquire, &a.acquire, func(got reply) {
		a.answered(got)
		if mayBeThere(got, got.err) {
			a.undo(ctx, got.err)
		}
	})
	if abandoned {
		a.nobodyWaits.Store(true)
		return nil, false, got.err
	}
	a.answered(got)
	err = heldBy(got)
	if err == nil {
		lock, err = a.begin(start, got)
	}
	if err != nil && mayBeThere(got, err) {
		a.undo(ctx, err)
	}
	return lock, got.split, err
}

// begin begins the lease of a request that was sent at start, and returns the handle for the
// caller. It fails with errSlow if nothing of the lease is left.
func (a *attempt) begin(start clock.Instant, got reply) (*Lock, error) {
	now := clock.Now()
	g := a.grantOf(start, got)
	if g.over(now) {
		return nil, errSlow
	}
	a.admit(g, now)
	return a.lease.serve(a.r, g, now, 0), nil
}

// grantOf returns the grant of a reply to a command that was sent at start.
func (a *attempt) grantOf(start clock.Instant, got reply) grant {
	return grant{start, clock.Validity(a.acquire.ttl, a.r.cfg.drift), got.tick, got.recheckAfter}
}

// grantOfClaim returns the grant of the newest message.
func (a *attempt) grantOfClaim() grant {
	p, drift := a.place, a.r.cfg.drift
	m := &p.message
	return grant{start: p.watch.Started(m.At, m.Arrived, drift), length: clock.Validity(p.claim, drift), tick: m.Tick}
}

// claimEnded reports whether nothing is left at now of the claim that the newest message has
// granted.
func (a *attempt) claimEnded(now clock.Instant) bool {
	if a.place == nil || a.place.message.Token == "" {
		return true
	}
	g := a.grantOfClaim()
	return g.over(now)
}

// mayBeThere reports whether an attempt may have left its token in Redis, or may do so. err is nil
// if it was granted.
func mayBeThere(got reply, err error) bool { return got.resent || !knownNotDone(err) }

// answered notes the reply to the acquire. If it was resent, an earlier send may be carried out
// until its timeout has passed.
func (a *attempt) answered(got reply) {
	if got.resent {
		a.resentUntil = clock.MonoNow().Add(a.acquire.timeout + a.acquire.confirm.replicaTimeout)
	}
}

// prepareLocked makes the acquire ready that a line asks for.
func (a *attempt) prepareLocked(m *moment, x *effect) {
	a.ctx, a.asked = x.Caller.Of.ctx, m.now
	if x.Entry == line.NoEntry {
		return
	}
	p := a.place
	if p == nil {
		p = &place{claim: a.acquire.ttl}
		dash := x.Entry == line.Dashed
		if a.r.cfg.renew { // else the new owner does not extend the claim. A minimum hold outlasts a crash
			p.claim = min(p.claim, max(inbox.Claim(dash), a.r.cfg.minHold))
		}
		p.entry = inbox.Entry(p.claim, dash, a.inbox.Channel, a.token)
		p.watch.Sent(m.now)
		a.lines.tokens[a.token] = a
		a.place, a.acquire.queueing = p, &p.queueing
	}
	p.queued, p.waited = x.Again, x.Age // an earlier send does not refer to them
}

// heard handles the outcome of the acquire of a line.
func (a *attempt) heard(got reply) {
	w := a.line
	m := a.enter()
	a.observeLocked(&m, m.now.Since(a.asked), got.err)
	a.answered(got)
	if m.grant = a.grantOf(a.asked, got); got.err == nil && m.grant.over(m.now) {
		got.err = errSlow
	}
	var room effects
	if got.err == nil {
		w.finish(&m, w.Granted(m.Facts, got.fresh, room[:0]))
		return
	}
	out := w.NotGranted(m.Facts, a.outcomeLocked(m.now, got), room[:0])
	var hook func(Event)
	var trouble Event
	// Those whose wait ends with the error report it themselves. Of the others, the first does.
	if head := w.Head(); head != nil && !errors.Is(got.err, ErrNotAcquired) {
		hook, trouble = a.troubleOf(head.Of, head.Of.attempts+w.News(head).Attempts, got.err)
	}
	w.finish(&m, out)
	if hook != nil {
		go hook(trouble) // ends with the hook
	}
}

// outcomeLocked says of an acquire that was not granted what the Machine must know.
func (a *attempt) outcomeLocked(now clock.Instant, got reply) line.Outcome {
	w, err := a.line, got.err
	o := line.Outcome{Answer: line.Failed, Err: heldBy(got), Left: got.left, First: got.first, Fresh: got.fresh}
	switch {
	case errors.Is(err, ErrNotAcquired):
		o.Answer = line.Refused
		o.Foreign = got.holder != "" && !tokens.HandsOn(got.holder)
		o.Moved = got.holder != "" && w.holder != "" && got.holder != w.holder
		w.holder = cmp.Or(got.holder, w.holder)
		if got.at != 0 && a.place != nil {
			a.place.watch.Told(a.asked, got.at)
		}
	case errors.Is(err, errSlow):
		o.Answer = line.Late
	case errors.Is(err, ErrNotReplicated):
		o.Answer = line.Unconfirmed
	case permanent(err):
		o.Answer = line.Permanent
	}
	o.Clean = !mayBeThere(got, err) &&
		(a.place == nil || o.Answer == line.Refused || errors.As(err, new(*node.NotDone)))
	o.Ended = a.claimEnded(now)
	return o
}

// carried handles the outcome of a release that has carried the acquire. If it has not queued the
// entry, the line asks.
func (a *attempt) carried(got reply) {
	w, err := a.line, got.err
	m := a.enter()
	o := line.Outcome{Answer: line.Refused, Err: ErrNotAcquired}
	var room effects
	out := room[:0]
	switch {
	case err != nil || got.at == 0:
		if err != nil && !errors.Is(err, ErrLost) {
			o.Answer, o.Err = line.Failed, err
		}
		out = w.Changed(m.Facts, out)
	default:
		a.place.watch.Told(a.asked, got.at)
		if got.tick > 0 {
			a.place.message = inbox.Grant{Token: a.token, Tick: got.tick, At: got.at, Arrived: m.now}
			out = w.Message(m.Facts, a.number, false, out)
		}
	}
	o.Ended = a.claimEnded(m.now)
	w.finish(&m, w.NotGranted(m.Facts, o, out))
}

// undo releases the token of an attempt that failed with err, or whose caller has left, and waits
// for that until ctx ends. It does not wait if most likely no release can be sent: if Redis cannot
// be reached, the key ends with its TTL.
func (a *attempt) undo(ctx context.Context, err error) {
	undone := make(chan struct{})
	a.back = release{params: a.acquire.releasing(clock.MonoNow(), 0), ctx: ctx, done: func(reply) { close(undone) }}
	a.giveBack()
	if node.Unreachable(err) {
		return
	}
	select {
	case <-undone:
	case <-ctx.Done():
	}
}

// giveBack sends the release.
func (a *attempt) giveBack() {
	back := &a.back
	if back.done == nil {
		back.params, back.ctx, back.done = a.acquire.releasing(clock.MonoNow(), 0), a.ctx, ignored
		back.queueing = a.leaving()
	} else if a.resentUntil != 0 { // an earlier send of the acquire may have queued the entry
		back.queueing = a.leaving()
	}
	ctx, done := back.ctx, back.done
	back.ctx = nil // who keeps the Lock does not keep it
	if next := back.pair; next != nil {
		back.queueing = &queueing{entry: back.queue().entry, next: next.place.entry, waited: next.place.waited}
		done = func(got reply) {
			next.carried(got)
			back.done(got)
		}
	}
	a.strategy.do(ctx, toRelease, &back.params, done)
}

// leaving takes the entry of a, if it has one, out of the queue.
func (a *attempt) leaving() *queueing {
	if a.place == nil {
		return nil
	}
	return &queueing{entry: a.place.entry}
}

func ignored(reply) {}
