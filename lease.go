package redlatch

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"sync"
	"time"
	"weak"
)

// margin is what drift holds back of every lease, however short: Redis keeps milliseconds.
const margin = 2 * time.Millisecond

// unclaimedShare is the part of a lease that was handed over after which the full TTL is asked for:
// most locks are released by then, and need no more.
const unclaimedShare = 100

// validity returns how long a lease of ttl is trusted, counted from its start:
//
//	until = start + TTL − drift, drift = TTL × factor + 2 ms
//
// start is read before the request leaves, so a slow reply shortens the lease.
func validity(ttl time.Duration, factor float64) time.Duration {
	return ttl - time.Duration(float64(ttl)*factor) - margin
}

// ttlFor returns the least TTL, in whole milliseconds, that is trusted for d.
func ttlFor(d time.Duration, factor float64) time.Duration {
	ms := math.Ceil(float64(d+margin) / (1 - factor) / float64(time.Millisecond))
	return time.Duration(ms) * time.Millisecond
}

// An instant is one moment on both clocks of this machine. The monotonic clock may stand still
// while the machine sleeps, and the wall clock may be set.
type instant struct {
	mono time.Time // compared by its monotonic reading
	wall time.Time // has none
}

// readClocks returns this moment.
func readClocks() instant {
	t := time.Now()
	return instant{mono: t, wall: t.Round(0)}
}

// since returns the time from earlier to i on the clock that is further on.
func (i instant) since(earlier instant) time.Duration {
	return max(i.mono.Sub(earlier.mono), i.wall.Sub(earlier.wall))
}

// A lease is a granted lock as time sees it: how long it is trusted, when it is renewed, and how
// it ended. It does not reach the Lock that the caller holds: a forgotten lock must end.
type lease struct {
	engine *engine
	cfg    *config
	key    string // as the caller named it
	claim  claim
	life   life
	fence  uint64

	granted instant        // when the granted request was made
	running sync.WaitGroup // extensions in flight; none starts once err is set

	mu        sync.Mutex         // guards the fields below
	start     instant            // of the newest request that counts
	length    time.Duration      // trusted from start until start + length
	renewAt   time.Duration      // when to renew, counted from start
	lookAt    time.Duration      // when to look whether the key is still ours, counted from granted; 0: never
	unclaimed bool               // handed over for a short time: the full TTL is still to be asked for
	extending int                // extensions in flight
	timer     *time.Timer        // runs tick; the one timer of a lock, stopped when the lease ends
	fresh     *Lock              // the caller's handle until the first tick, for most locks are short
	held      weak.Pointer[Lock] // the same from then on: it empties when the caller drops it
	released  bool               // Unlock was called
	err       error              // why the lease ended, nil before
	done      chan struct{}      // nil until somebody asks
	contexts  map[context.Context]context.CancelCauseFunc
}

// begin starts the lease that a request made at start was granted, and returns the handle on it.
func (l *lease) begin(start instant, length, lookAt time.Duration) *Lock {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fresh = &Lock{lease: l}
	l.granted, l.start, l.lookAt = start, start, lookAt
	l.prolongLocked(start, length)
	l.timer = time.AfterFunc(l.nextLocked(), l.tick)
	return l.fresh
}

// prolongLocked lets the lease last until start + length. It never shortens it and never passes
// what WithMaxHold allows.
func (l *lease) prolongLocked(start instant, length time.Duration) {
	if l.cfg.maxHold > 0 {
		length = min(length, l.cfg.maxHold-start.since(l.granted))
	}
	if start.since(l.start)+length > l.length {
		l.start, l.length = start, length
	}
	full := validity(l.cfg.ttl, l.cfg.drift)
	l.renewAt = l.length - full + min(l.cfg.ttl/3, full/2)
	if l.unclaimed {
		l.renewAt = l.length / unclaimedShare
	}
}

// renewableLocked reports whether the lease is to be renewed once more.
func (l *lease) renewableLocked() bool {
	return (l.cfg.renew || l.unclaimed) && l.extending == 0 && !l.atMaxHoldLocked() &&
		(l.fresh != nil || l.held.Value() != nil)
}

// atMaxHoldLocked reports whether the lease lasts as long as WithMaxHold allows.
func (l *lease) atMaxHoldLocked() bool {
	return l.cfg.maxHold > 0 && l.start.since(l.granted)+l.length >= l.cfg.maxHold
}

// nextLocked returns how long tick may sleep: until a renewal or a look, or until the end, and the
// first time until half-way to the renewal.
func (l *lease) nextLocked() time.Duration {
	next := l.length
	if l.lookAt > 0 && l.extending == 0 {
		next = min(next, l.lookAt-l.start.since(l.granted))
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

// judgeLocked ends the lease where its time has come, and returns why it ended. It asks nobody.
func (l *lease) judgeLocked() error {
	if l.err == nil && l.engine.now().since(l.start) >= l.length {
		if l.atMaxHoldLocked() {
			l.endLocked(ErrMaxHold)
		} else {
			l.endLocked(ErrLost)
		}
	}
	return l.err
}

// endLocked ends the lease, once.
func (l *lease) endLocked(err error) {
	l.err = err
	if errors.Is(err, ErrReleased) {
		l.life.state.Store(lifeReleased)
	} else {
		l.life.state.Store(lifeLost)
	}
	l.fresh = nil
	l.timer.Stop()
	if l.done != nil {
		close(l.done)
	}
	for _, cancel := range l.contexts {
		cancel(err)
	}
	l.contexts = nil
}

// status judges the lease and returns why it ended. Whoever notices the end reports it.
func (l *lease) status() error {
	l.mu.Lock()
	before := l.err
	after := l.judgeLocked()
	l.mu.Unlock()
	l.reportLoss(before, after)
	return after
}

// end ends the lease for err, which came from elsewhere, unless it has ended.
func (l *lease) end(err error) {
	l.mu.Lock()
	before := l.err
	if before == nil {
		l.endLocked(err)
	}
	after := l.err
	l.mu.Unlock()
	l.reportLoss(before, after)
}

// reportLoss tells the hooks where the lease was lost between before and after.
func (l *lease) reportLoss(before, after error) {
	if before == nil && errors.Is(after, ErrLost) {
		l.fire(l.cfg.hooks.Lost, l.engine.now().since(l.granted), after)
	}
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
	look := after == nil && l.lookAt > 0 && l.extending == 0 && at.since(l.granted) >= l.lookAt
	if renew || look {
		l.extendingLocked()
	}
	if after == nil {
		l.timer.Reset(l.nextLocked())
	}
	l.mu.Unlock()
	l.reportLoss(before, after)
	// The hooks hear of a failure, and tick comes again. A lease that is not renewed is looked at by
	// an extension that is too short to move it.
	if renew {
		_ = l.extended(context.Background(), l.cfg.ttl)
	} else if look {
		_ = l.extended(context.Background(), time.Millisecond)
	}
}

// extend makes the lease last for ttl from now, at the caller's wish.
func (l *lease) extend(ctx context.Context, ttl time.Duration) error {
	l.mu.Lock()
	before := l.err
	after := l.judgeLocked()
	if after == nil {
		l.extendingLocked()
	}
	l.mu.Unlock()
	l.reportLoss(before, after)
	if after != nil {
		return after
	}
	return l.extended(ctx, ttl)
}

// extendingLocked announces an extension, which extended then carries out. The lease has not
// ended, so Unlock has not begun.
func (l *lease) extendingLocked() {
	l.extending++
	l.running.Add(1)
}

// extended asks for a longer lease. What is not certain leaves the lease as it was.
func (l *lease) extended(ctx context.Context, ttl time.Duration) error {
	start := l.engine.now()
	c := l.claim
	c.replicas = 0 // the grant is on them
	c.ttl, c.fence, c.until = l.affordable(start, ttl), l.fence, l.until()
	c.bound = l.brief(start, c.until)
	err := l.engine.strategy.extend(ctx, &c)
	trip := l.engine.now().since(start)

	l.mu.Lock()
	l.extending--
	before := l.err
	after := l.judgeLocked() // an answer after the end comes too late
	if after == nil {
		switch {
		case err == nil:
			l.unclaimed = l.unclaimed && ttl < l.cfg.ttl
			l.prolongLocked(start, validity(c.ttl, l.cfg.drift))
			if start.since(l.granted) >= l.lookAt {
				l.lookAt = 0
			}
		case errors.Is(err, ErrLost):
			l.endLocked(ErrLost)
		default:
			pause := c.bound/4 + rand.N(c.bound/2+1)
			l.renewAt = l.engine.now().since(l.start) + pause
			if l.lookAt > 0 {
				l.lookAt = l.engine.now().since(l.granted) + pause
			}
		}
	}
	if after = l.judgeLocked(); after == nil {
		l.timer.Reset(l.nextLocked())
	}
	l.mu.Unlock()
	l.running.Done() // before a hook is called: it may call Unlock

	l.reportLoss(before, after)
	switch {
	case after != nil:
		return after
	case err != nil:
		l.fire(l.cfg.hooks.RenewFailed, trip, err)
	default:
		l.fire(l.cfg.hooks.Renewed, trip, nil)
	}
	return err
}

// brief returns the bound of an extension at start: so short that there is time for several until
// the lease ends.
func (l *lease) brief(start instant, until time.Time) time.Duration {
	return min(l.claim.bound, max(until.Sub(start.mono)/4, 50*time.Millisecond))
}

// affordable cuts ttl to what WithMaxHold leaves of it at start.
func (l *lease) affordable(start instant, ttl time.Duration) time.Duration {
	if l.cfg.maxHold == 0 {
		return ttl
	}
	return min(ttl, ttlFor(l.cfg.maxHold-start.since(l.granted), l.cfg.drift))
}

// release ends the lease and gives the key back, whatever has become of the lease and of ctx. An
// extension in flight may land after the release, where it finds the token gone; release waits
// for both.
func (l *lease) release(ctx context.Context) error {
	l.mu.Lock()
	if l.released {
		l.mu.Unlock()
		return ErrReleased
	}
	l.released = true
	before := l.err
	lost := l.judgeLocked()
	if lost == nil {
		l.endLocked(ErrReleased)
	}
	l.mu.Unlock()
	l.reportLoss(before, lost)

	err := l.engine.strategy.release(detached(ctx), &l.claim)
	if errors.Is(err, ErrLost) && l.life.undone.Load() {
		err = nil // by the release that followed a straggling acquire
	}
	l.running.Wait()
	held := l.engine.now().since(l.granted)
	switch {
	case lost != nil:
		return lost
	case errors.Is(err, ErrLost):
		l.fire(l.cfg.hooks.Lost, held, err)
	default:
		l.fire(l.cfg.hooks.Released, held, err)
	}
	return err
}

// ended returns the channel that is closed when the lease ends.
func (l *lease) ended() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done == nil {
		l.done = make(chan struct{})
		if l.err != nil {
			close(l.done)
		}
	}
	return l.done
}

// context returns a child of parent that ends with the lease.
func (l *lease) context(parent context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(parent)
	if err := l.status(); err != nil {
		cancel(err)
		return ctx
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		cancel(l.err)
		return ctx
	}
	if l.contexts == nil {
		l.contexts = make(map[context.Context]context.CancelCauseFunc)
	}
	l.contexts[ctx] = cancel
	// Ends with ctx, so at the latest with the lease.
	context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.contexts, ctx)
		cancel(nil)
	})
	return ctx
}

// until returns the end of the lease.
func (l *lease) until() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.start.mono.Add(l.length)
}

// fire calls a hook for this lock.
func (l *lease) fire(hook func(Event), elapsed time.Duration, err error) {
	if hook != nil {
		hook(Event{
			Strategy: l.engine.strategy.name(), Key: l.key, Token: l.claim.token, Fence: l.fence,
			Elapsed: elapsed, Err: err,
		})
	}
}

// detached returns ctx with its values and without its end.
func detached(ctx context.Context) context.Context {
	if ctx.Done() == nil {
		return ctx
	}
	return context.WithoutCancel(ctx)
}
