package redlatch

import (
	"cmp"
	"context"
	"errors"
	"time"
	"weak"

	"github.com/redlatch/redlatch/internal/clock"
	core "github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/wire"
)

// A handle is what a caller has of a lease: a seat, and its number among the handles that have had
// that seat, one after the other.
type handle struct {
	lease  *lease
	seat   *seat
	number int
}

// noHandle is the handle of a zero Lock. It has left its lease.
var noHandle = func() handle {
	a := &attempt{engine: &engine{traits: traits{keeps: true}}, id: identity{names: &names{}}}
	a.lease.attempt, a.lease.core.Config = a, new(core.Config)
	return handle{lease: &a.lease, seat: &a.lease.first, number: -1}
}()

// A seat is the place of a handle among those that share a lease. Once the lease is no longer
// young, it has only a weak pointer to the Lock, so that a dropped one ends.
type seat struct {
	core     core.Seat
	since    clock.Instant      // when its handle was granted the lock
	hooks    *Hooks             // of the call that was granted it
	strong   *Lock              // while the lease is young, since weak pointers cost short locks too much
	weak     weak.Pointer[Lock] // afterwards; nil once the caller has dropped the Lock
	ends     context.Context    //nolint:containedctx // ends with the handle; nil until it is asked for
	cancel   context.CancelCauseFunc
	contexts map[parent]*lockCtx
}

// A caller is the handle whose call noticed that something happened to a lease.
type caller struct {
	seat *seat
	ctx  context.Context //nolint:containedctx // of the call, for its hooks; nil: the call has none
}

// nobody is the caller if a timer or a message noticed it.
var nobody caller

// context returns the ctx for hooks.
func (c caller) context() context.Context {
	if c.ctx == nil {
		return context.Background()
	}
	return c.ctx
}

// take gives the seat to the handle of k.
func (s *seat) take(k *Lock, r *request, since clock.Instant) {
	s.since, s.hooks, s.strong = since, &r.cfg.hooks, k
}

// end ends what the handle of the seat has given out.
func (s *seat) end(err error) {
	if s.cancel != nil {
		s.cancel(err)
	}
	for _, c := range s.contexts {
		c.stop()
		c.cancel(err)
	}
	s.ends, s.cancel, s.contexts, s.strong = nil, nil, nil, nil
}

// endsLocked returns a ctx without values that ends with the handle, which has not ended.
func (s *seat) endsLocked() context.Context {
	if s.ends == nil {
		s.ends, s.cancel = context.WithCancelCause(context.Background())
	}
	return s.ends
}

// inUse reports whether the caller has the handle.
func (s *seat) inUse() bool { return s.strong != nil || s.weak.Value() != nil }

// weaken keeps only a weak pointer to the Lock.
func (s *seat) weaken() {
	if s.strong != nil {
		s.strong, s.weak = nil, weak.Make(s.strong)
	}
}

// change calls f as that of the lease does, unless the handle has left the lease to others.
func (h handle) change(by caller, f func()) error {
	holds := false
	err := h.lease.change(by, func() {
		if holds = h.seat.core.Holds(h.number); holds {
			f()
		}
	})
	if !holds {
		return ErrReleased
	}
	return err
}

// errLocked returns why the handle has ended. It does not judge the lease.
func (h handle) errLocked() error {
	if !h.seat.core.Holds(h.number) {
		return ErrReleased
	}
	return h.lease.err
}

// status judges the lease and returns why the handle ended.
func (h handle) status() error {
	return h.change(caller{seat: h.seat}, func() { h.lease.core.Judge(clock.Now()) })
}

// end ends the lease with the err of the other side of a migration, unless it or the handle has
// ended.
func (h handle) end(err error) {
	_ = h.lease.change(nobody, func() { h.lease.core.End(&h.seat.core, h.number, err) })
}

// release ends the handle. It leaves the lock to others who share it, passes it on within the
// process, or ends the lease and gives the key back, whatever has become of the lease and of ctx.
// If after is set, nobody else gets the key within that time. It waits for the release and for an
// extension in flight, which fails if it reaches Redis after the release. If the lease was lost and
// others may know the token, the key is left alone: another handle may hold it.
func (h handle) release(ctx context.Context, after time.Duration) error {
	l := h.lease
	var what core.Release
	var keep time.Duration
	var began clock.Instant
	var s seat
	ended := l.change(caller{h.seat, ctx}, func() {
		began = clock.Now()
		what, keep = l.core.Unlock(&h.seat.core, h.number, began, after)
		s = *h.seat
		switch what {
		case core.Keep:
			l.running.Add(1)
			fallthrough
		case core.Stay, core.Pass:
			h.seat.end(ErrReleased)
		}
	})
	now, passed := began, false
	var err error
	if what == core.Keep {
		what, keep, err = l.leaveAfter(ctx, caller{h.seat, ctx}, keep)
		now = clock.Now()
	}
	switch what {
	case core.Refuse:
		return ErrReleased
	case core.Pass, core.Give, core.GiveIfThere:
		passed, err = l.giveBack(ctx, now, what, keep)
	}
	hook, replied := s.hooks.Released, now
	if errors.Is(err, ErrLost) {
		hook = s.hooks.Lost
	}
	if !passed && what != core.Stay {
		replied = clock.Now()
		l.running.Wait()
	}
	if ended != nil && (what == core.GiveIfThere || what == core.GiveNothing) {
		return ended
	}
	l.fire(ctx, hook, Event{
		Elapsed: replied.Since(s.since), Took: replied.Since(began), Fence: h.fence(), Err: err,
	})
	return err
}

// extend makes the lease last for ttl from now, for Lock.Extend.
func (h handle) extend(ctx context.Context, ttl time.Duration) error {
	l := h.lease
	if err := h.change(caller{h.seat, ctx}, func() {
		l.core.Settle()
		l.weakenLocked()
		if l.core.Judge(clock.Now()) {
			l.running.Add(1)
		}
	}); err != nil {
		return err
	}
	return l.sendExtension(ctx, caller{h.seat, ctx}, ttl, 0)
}

// reveal returns the token for others, or "" if the handle has left the lease to others.
func (h handle) reveal() string {
	token, l := "", h.lease
	_ = h.change(caller{seat: h.seat}, func() {
		l.core.Reveal()
		l.weakenLocked()
		token = l.attempt.id.token
	})
	if token != "" {
		l.attempt.engine.spares(token)
	}
	return token
}

// dropMinHold lets Unlock keep nobody out.
func (h handle) dropMinHold() {
	h.lease.mu.Lock()
	defer h.lease.mu.Unlock()
	h.seat.core.DropsMinHold = true
}

// fence returns the fence of the handle.
func (h handle) fence() uint64 { return h.lease.fence(h.number) }

// ended returns a ctx without values that ends with the handle.
func (h handle) ended() context.Context {
	h.lease.mu.Lock()
	defer h.lease.mu.Unlock()
	if err := h.errLocked(); err != nil {
		return endedBy(err)
	}
	return h.seat.endsLocked()
}

// refuseOwnWait returns an error if ctx is that of a lock on the key of r which keeps the call out:
// it ends with the lock, so the call would wait for itself.
func (e *engine) refuseOwnWait(ctx context.Context, r *request) error {
	for h, _ := ctx.Value(ctxLockKey{}).(*ctxLock); h != nil; h = h.outer {
		if a := h.lease.attempt; a.id.lock == r.names.lock && e.keptOutBy(r, a.engine) && h.status() == nil {
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

func (l *lease) until() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.core.Until().Time()
}

// refusal returns what this process knows of the lock that it holds, for a caller that is refused key.
func (l *lease) refusal(key string) error {
	l.mu.Lock()
	left := l.core.Left(clock.Now())
	if left > 0 {
		left += l.core.Grace // others have to wait for that, too
	}
	l.mu.Unlock()
	token := l.attempt.id.token
	return &HeldError{Key: key, Owner: wire.Owner(token), Since: wire.MadeAt(token), TTL: left, ours: true}
}
