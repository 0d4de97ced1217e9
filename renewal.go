package redlatch

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
	"weak"

	"github.com/redlatch/redlatch/internal/clock"
)

// renewableLocked reports whether a renewal may start.
func (l *lease) renewableLocked() bool {
	kept := l.strong != nil || l.weak.Value() != nil
	return l.r.cfg.renew && kept && !l.renewing
}

// nextLocked returns the time until the timer must fire: for a renewal, a check or the end of the lease. The first
// time it fires half-way from the grant to the renewal.
func (l *lease) nextLocked(now clock.Instant) time.Duration {
	next := l.length - now.Since(l.start)
	if l.recheckAt > 0 && !l.renewing {
		next = min(next, l.recheckAt-now.Since(l.granted))
	}
	if l.renewableLocked() {
		at := l.renewAt
		if l.strong != nil {
			at = (at + l.replied.Since(l.renewed)) / 2
		}
		next = min(next, at-now.Since(l.renewed))
	}
	return next
}

// tick runs when the timer fires. It ends the lease, renews it or checks it. While a renewal is in flight, the timer
// is set to the end of the lease, so a loss is noticed without a reply.
func (l *lease) tick() {
	at := l.engine.now()
	l.mu.Lock()
	ended := l.judgeLocked(at) != nil
	if l.strong != nil {
		l.strong, l.weak = nil, weak.Make(l.strong)
	}
	var ttl time.Duration
	switch {
	case ended:
	case l.renewableLocked() && at.Since(l.renewed) >= l.renewAt:
		ttl = l.r.cfg.ttl
		if l.claimed {
			ttl = max(ttl, l.params.ttl)
		}
	case l.recheckAt > 0 && !l.renewing && at.Since(l.granted) >= l.recheckAt:
		ttl = time.Millisecond // a check is an extension that is too short to move the end
	}
	if ttl > 0 {
		l.renewing = true
		l.running.Add(1)
	}
	if !ended {
		l.timer.Reset(l.nextLocked(at))
	}
	l.unlock()
	if ttl > 0 {
		_ = l.extended(context.Background(), ttl, true) // hooks report a failure, and tick tries again
	}
}

// extend makes the lease last for ttl from now, for Lock.Extend.
func (l *lease) extend(ctx context.Context, handle int, ttl time.Duration) error {
	l.mu.Lock()
	if handle != l.handle {
		l.mu.Unlock()
		return ErrReleased
	}
	l.pinned = true
	ended := l.judgeLocked(l.engine.now())
	if ended == nil {
		l.running.Add(1)
	}
	l.unlock()
	if ended != nil {
		return ended
	}
	return l.extended(ctx, ttl, false)
}

// patience returns the timeout of an extension that is sent at start: a part of what is left of the lease, for several
// attempts until the end. The extension of a claim gets all that is left, since a claim is short.
func (l *lease) patience(start clock.Instant, renewal bool) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	left := l.length - start.Since(l.start)
	if l.claimed && renewal {
		return max(left, 50*time.Millisecond)
	}
	return min(l.params.timeout, max(left/4, 50*time.Millisecond))
}

// An extension is one command that extends a lease.
type extension struct {
	leaseParams
	start   clock.Instant // when it was sent
	usual   bool          // it is for the TTL or more
	renewal bool          // or a check; else it is a call of Extend
}

// extended sends an extension. Its caller has added it to l.running while the lease was held. If ctx ends first, the extension
// goes on.
func (l *lease) extended(ctx context.Context, ttl time.Duration, renewal bool) error {
	x := &extension{leaseParams: l.params, start: l.engine.now(), usual: ttl >= l.r.cfg.ttl, renewal: renewal}
	x.ttl = ttl
	if most := l.r.cfg.maxHold; most > 0 {
		x.ttl = min(ttl, clock.TTLFor(most-x.start.Since(l.granted), l.r.cfg.drift))
	}
	x.ttlMS = x.ttl.Milliseconds()
	x.timeout = l.patience(x.start, renewal)
	x.fence = l.fence
	if left := l.left(x.start); left > 0 && (!renewal || x.usual) { // a check restores nothing
		x.restoreMS = max(x.ttl, clock.TTLFor(left, l.r.cfg.drift)).Milliseconds()
	}
	e := l.engine
	w := e.extensions.get()
	e.strategy.extend(ctx, &x.leaseParams, w.done)
	_, err := await(ctx, e, "extend", &x.target, &e.extensions, w, func(_ struct{}, err error) { _ = l.confirmed(x, err) })
	if errors.As(err, new(*gaveUp)) {
		return err
	}
	return l.confirmed(x, err)
}

// confirmed handles the outcome of an extension, and calls the hooks. An unknown outcome leaves the lease as it was.
func (l *lease) confirmed(x *extension, err error) error {
	replied := l.engine.now()
	trip := replied.Since(x.start)
	l.mu.Lock()
	if x.renewal {
		l.renewing = false
	}
	l.trouble = err
	if l.judgeLocked(replied) == nil { // else the reply comes too late
		l.extendedLocked(x, replied, err)
	}
	now := l.engine.now()
	ended := l.judgeLocked(now)
	if ended == nil {
		l.timer.Reset(l.nextLocked(now))
	}
	l.running.Done() // before the hooks, which may call Unlock
	l.unlock()

	e := Event{Elapsed: trip, Took: trip, Renewal: x.renewal, Fence: x.fence, Err: err}
	switch {
	case ended != nil:
		return ended
	case err != nil:
		l.fire(l.hooks.RenewFailed, e)
	default:
		l.fire(l.hooks.Renewed, e)
	}
	return err
}

// extendedLocked notes the outcome of an extension. After a failed renewal the next one is due soon.
func (l *lease) extendedLocked(x *extension, replied clock.Instant, err error) {
	switch {
	case err == nil:
		l.prolongLocked(x.start, clock.Validity(x.ttl, l.r.cfg.drift))
		l.claimed = l.claimed && !x.renewal && x.ttl < l.params.ttl
		if x.usual {
			l.renewedLocked(x.start)
		}
		if x.start.Since(l.granted) >= l.recheckAt {
			l.recheckAt = 0
		}
	case errors.Is(err, ErrLost):
		l.endLocked(err, true)
	case x.renewal:
		most := min(x.timeout, l.params.timeout)
		pause := most/4 + rand.N(most/2+1)
		l.renewAt = replied.Since(l.renewed) + pause
		if l.recheckAt > 0 {
			l.recheckAt = replied.Since(l.granted) + pause
		}
	}
}
