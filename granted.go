package redlatch

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/wire"
)

// An attempt that was granted a lock is the lease.Home of its lease.
var _ lease.Home = (*attempt)(nil)

// attemptOf returns the attempt whose lease a handle has.
func attemptOf(h lease.Handle) *attempt { return h.Home().(*attempt) }

// noHandle is the handle of a zero Lock. It has left its lease.
var noHandle = lease.NoHandle(&attempt{
	engine: &engine{traits: traits{keeps: true}}, id: identity{names: &names{}}, request: &request{cfg: &config{}},
})

// grantLock begins the lease with the grant of its attempt, which is known at now, or passes it on. It
// returns the lock for r.
func (a *attempt) grantLock(ctx context.Context, r *request, now clock.Instant, pass int) *Lock {
	k := new(Lock)
	by := &r.cfg.lease
	if pass > 0 {
		a.lease.Pass(ctx, &k.handle, by, now)
		return k
	}
	a.open()
	g := &a.grant // which does not change any more
	a.lease.Begin(ctx, &k.handle, by, g.start, now, g.length, g.recheck)
	return k
}

// fence returns the fence of the handle with a number.
func (a *attempt) fence(number int) uint64 { return wire.Fence(a.grant.tick, number) }

// fenceOf returns the fence of a handle.
func fenceOf(h lease.Handle) uint64 { return attemptOf(h).fence(h.Number()) }

// Ended ends the turn of a lease that was lost.
func (a *attempt) Ended(lost bool) {
	a.close()
	if !lost {
		return
	}
	a.engine.forgetsSpared(a)
	if a.inLine.Joined() {
		a.inLine.Lost(clock.Now())
	}
}

// Report calls the hook of a report.
func (a *attempt) Report(ctx context.Context, r lease.Report) {
	hooks := r.By.Hooks.(*Hooks)
	e := Event{Elapsed: r.Elapsed, Took: r.Took, Fence: a.fence(r.Number), Err: r.Err}
	hook := hooks.Released
	switch x := r.Extension; {
	case x != nil:
		e.Renewal, e.again = x.Renewal, x.Again
		if hook = hooks.Renewed; r.Err != nil {
			hook = hooks.RenewFailed
		}
	case errors.Is(r.Err, ErrLost):
		hook = hooks.Lost
	}
	a.fire(ctx, hook, e)
}

// fire adds the lock to an event, which has the fence, and calls a hook with it.
func (a *attempt) fire(ctx context.Context, hook func(context.Context, Event), e Event) {
	if hook != nil {
		e.Strategy, e.Key = a.engine.name, a.id.key
		e.Owner, e.Err = wire.Parse(a.id.token).Owner, asOutage(e.Err)
		hook(ctx, e)
	}
}

// Pass has the line pass the lock on, or give it back.
func (a *attempt) Pass(ctx context.Context, now clock.Instant) (passed bool, err error) {
	b := a.unlock(ctx, now, true, 0)
	if b == nil {
		return true, nil
	}
	a.lease.NotPassed()
	return false, a.outcome(b)
}

// GiveBack sends a release and waits for its outcome. A lost lock has no turn left, and readers have
// none, so their release goes straight to Redis.
func (a *attempt) GiveBack(ctx context.Context, now clock.Instant, keep time.Duration, held bool) error {
	ends, inRedis := a.engine.endsKeep(keep), keep
	if ends {
		inRedis += keepMargin
	}
	var b *release
	if a.inLine.Joined() && held {
		b = a.unlock(ctx, now, false, inRedis)
	} else {
		b = a.releasing(ctx, now.Mono, inRedis)
		a.giveBack(b)
	}
	err := a.outcome(b)
	if ends && !errors.Is(err, ErrLost) {
		a.endKeep(now.Mono.Add(keep))
	}
	return err
}

// outcome waits for the outcome of a release.
func (a *attempt) outcome(b *release) error {
	<-b.came
	b.loan.over()
	if b.reply.contended {
		a.engine.lines.Yield(a.id.lock, a.engine.longestYield(a.request.cfg))
	}
	return b.reply.err
}

const (
	// endedHere is the longest time after which the process that keeps a key hands it on. If a key is
	// kept for longer, the first in the queue has looked by then, and knows when to ask.
	endedHere = 10 * time.Second

	// keepMargin is how much longer Redis keeps a key that its process is to hand on. If that process
	// is gone, the key ends by itself then.
	keepMargin = 100 * time.Millisecond
)

// endsKeep reports whether this process hands on a key that was kept for a time.
func (e *engine) endsKeep(keep time.Duration) bool {
	return e.inbox != nil && 0 < keep && keep <= endedHere
}

// endKeep hands on, at a time, the key that a release of the attempt keeps. Until then the timer
// holds the names of the key and of its keeper, and nothing else of the lock or of its calls.
func (a *attempt) endKeep(at clock.Mono) {
	e, prefix, lock := a.engine, a.request.cfg.prefix, a.id.lock
	token, timeout := wire.Keeper(a.id.token), a.acquire.timeout
	e.pending.begin()
	// It posts a command, and ends. Drain waits for it.
	time.AfterFunc(at.Sub(clock.MonoNow()), func() {
		defer e.pending.done()
		id := identity{names: &names{lock: lock, at: e.strategy.wordsOf(prefix, lock)}, token: token}
		p := params{identity: &id, timeout: timeout, began: clock.MonoNow()}
		e.strategy.do(context.Background(), toRelease, &p, &answer{came: make(chan struct{})})
	})
}

// An extension is one command that extends a lease.
type extension struct {
	lease.Extension
	params
	restoring restoring
	loan      loan // of the ctx of the call
}

// Extend sends an extension, and waits for its outcome until ctx ends.
func (a *attempt) Extend(ctx context.Context, sent lease.Extension) error {
	x := &extension{Extension: sent, params: params{identity: &a.id, ttl: sent.TTL, timeout: sent.Timeout}}
	x.restoring = restoring{a.fence(sent.Number), sent.Restore}
	x.params.restoring = &x.restoring
	defer x.loan.over()
	got, late := a.engine.run(x.loan.lend(ctx), x.Start.Mono, toExtend, &x.params)
	if late != nil {
		late.then(func(got reply) { _ = a.lease.Extended(&x.Extension, true, got.err) })
		return got.err
	}
	return a.lease.Extended(&x.Extension, false, got.err)
}

// refuseOwnWait returns an error if ctx is that of a lock on the key of r which keeps the call out:
// it ends with the lock, so the call would wait for itself.
func (e *engine) refuseOwnWait(ctx context.Context, r *request) error {
	for h, _ := ctx.Value(ctxLockKey{}).(*ctxLock); h != nil; h = h.outer {
		if a := attemptOf(h.Handle); a.id.lock == r.names.lock && e.keptOutBy(r, a.engine) && h.Err() == nil {
			return invalid("ctx comes from that of a lock on %q: Lock would wait for itself, since locks are not reentrant. "+
				"If the holder does not wait for this call, pass a ctx that does not come from there, not even by WithoutCancel",
				r.names.key)
		}
	}
	return nil
}

// keptOutBy reports whether a lock of holder on the same key is known to keep r, a call of e, out.
// One of the same Locker, or of its pair, does unless r has a limit above 1. One on the same
// client does if either of the two writes. A second reader is kept out if a writer comes in between.
func (e *engine) keptOutBy(r *request, holder *engine) bool {
	if cmp.Or(e.pair, e) == cmp.Or(holder.pair, holder) {
		return r.cfg.limit <= 1 || e.reads || e.writes
	}
	return (e.writes || holder.writes) && e.sharesClient(holder)
}

// refusal returns what this process knows of the lock that it holds, for a caller that is refused key.
func (a *attempt) refusal(key string) error {
	h := wire.Parse(a.id.token)
	return &HeldError{Key: key, Owner: h.Owner, Since: h.MadeAt, TTL: a.lease.Left(), ours: true}
}
