package redlatch

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
	"weak"
)

// renewableLocked reports whether the lease is to be renewed once more.
func (l *lease) renewableLocked() bool {
	kept := l.fresh != nil || l.held.Value() != nil
	return l.r.cfg.renew && kept && !l.renewing && !l.atMaxHoldLocked()
}

// atMaxHoldLocked reports whether the lease lasts as long as WithMaxHold allows.
func (l *lease) atMaxHoldLocked() bool {
	return l.r.cfg.maxHold > 0 && l.start.since(l.granted)+l.length >= l.r.cfg.maxHold
}

// nextLocked returns how long tick may sleep: until a renewal or a look, or until the end, and the
// first time until half-way to the renewal.
func (l *lease) nextLocked() time.Duration {
	next := l.length
	if l.recheckAt > 0 && !l.renewing {
		next = min(next, l.recheckAt-l.start.since(l.granted))
	}
	if l.renewableLocked() {
		at := l.renewAt
		if l.fresh != nil {
			at /= 2
		}
		next = min(next, at)
	}
	return next - l.engine.now().since(l.start)
}

// tick runs when the timer fires. It ends the lease or renews it; while a renewal is in flight,
// the timer stands at the end, so that a loss needs no answer from anybody.
func (l *lease) tick() {
	l.mu.Lock()
	before := l.err
	after := l.judgeLocked()
	if l.fresh != nil {
		l.fresh, l.held = nil, weak.Make(l.fresh)
	}
	at := l.engine.now()
	renew := after == nil && l.renewableLocked() && at.since(l.start) >= l.renewAt
	look := after == nil && l.recheckAt > 0 && !l.renewing && at.since(l.granted) >= l.recheckAt
	if renew || look {
		l.renewing = true
		l.running.Add(1)
	}
	if after == nil {
		l.timer.Reset(l.nextLocked())
	}
	l.mu.Unlock()
	l.reportLoss(before, after)
	// The hooks hear of a failure, and tick comes again. A lease that is not renewed is looked at by
	// an extension that is too short to move it.
	if renew {
		_ = l.extended(context.Background(), l.r.cfg.ttl, true)
	} else if look {
		_ = l.extended(context.Background(), time.Millisecond, true)
	}
}

// extend makes the lease last for ttl from now, at the caller's wish.
func (l *lease) extend(ctx context.Context, ttl time.Duration) error {
	l.mu.Lock()
	before := l.err
	after := l.judgeLocked()
	if after == nil {
		l.running.Add(1)
	}
	l.mu.Unlock()
	l.reportLoss(before, after)
	if after != nil {
		return after
	}
	return l.extended(ctx, ttl, false)
}

// extended asks for a longer lease, as its caller has announced to l.running before the lease ended. What
// is not certain leaves the lease as it was. A renewal that fails is due again soon.
func (l *lease) extended(ctx context.Context, ttl time.Duration, renewal bool) error {
	start := l.engine.now()
	p := &extendParams{target: l.params.target, ttl: l.affordable(start, ttl), lease: l}
	p.timeout = l.renewTimeout(start, l.until())
	err := l.engine.strategy.extend(ctx, p)
	trip := l.engine.now().since(start)

	l.mu.Lock()
	if renewal {
		l.renewing = false
	}
	l.trouble = err
	before := l.err
	after := l.judgeLocked() // an answer after the end comes too late
	if after == nil {
		switch {
		case err == nil:
			l.prolongLocked(start, validity(p.ttl, l.r.cfg.drift))
			if start.since(l.granted) >= l.recheckAt {
				l.recheckAt = 0
			}
		case errors.Is(err, ErrLost):
			l.endLocked(err)
		case renewal:
			pause := p.timeout/4 + rand.N(p.timeout/2+1)
			l.renewAt = l.engine.now().since(l.start) + pause
			if l.recheckAt > 0 {
				l.recheckAt = l.engine.now().since(l.granted) + pause
			}
		}
	}
	if after = l.judgeLocked(); after == nil {
		l.timer.Reset(l.nextLocked())
	}
	l.mu.Unlock()
	l.running.Done() // before a hook is called: it may call Unlock

	l.reportLoss(before, after)
	e := Event{Elapsed: trip, Took: trip, Renewal: renewal, Err: err}
	switch {
	case after != nil:
		return after
	case err != nil:
		l.fire(l.r.cfg.hooks.RenewFailed, e)
	default:
		l.fire(l.r.cfg.hooks.Renewed, e)
	}
	return err
}

// renewTimeout returns the timeout of an extension at start: so short that there is time for several until
// the lease ends.
func (l *lease) renewTimeout(start instant, until time.Time) time.Duration {
	return min(l.params.timeout, max(until.Sub(start.mono)/4, 50*time.Millisecond))
}

// affordable cuts ttl to what WithMaxHold leaves of it at start.
func (l *lease) affordable(start instant, ttl time.Duration) time.Duration {
	if l.r.cfg.maxHold == 0 {
		return ttl
	}
	return min(ttl, ttlFor(l.r.cfg.maxHold-start.since(l.granted), l.r.cfg.drift))
}
