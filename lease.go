package redlatch

import (
	"context"
	"fmt"
	"sync"
	"time"
	"weak"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/handoff"
)

// A lease is a lock that was asked for with a token: how long it is trusted, when it is renewed, and why it ended. It
// belongs to the process. A [Lock] is a handle on it. Unlock may pass the lock on within the process: that ends one handle and
// begins another. The lease does not refer to the handle of a caller, so that a dropped one ends.
type lease struct {
	engine *engine
	r      *request
	params leaseParams
	line   *waiters // that asks, or was granted the key; nil: the lock is not passed on

	// Of the token of a line. lines.mu guards them until it is granted.
	number uint64        // of the token
	asked  bool          // an acquire was sent
	entry  string        // that may be in the queue of Redis; empty: none
	claim  time.Duration // of the entry
	watch  handoff.Watch // of the entry

	unclear time.Time // until when an earlier send of the acquire may be carried out; zero: none

	granted clock.Instant  // when the acquire was sent
	replied clock.Instant  // when this process learned of the grant
	running sync.WaitGroup // extensions in flight; none starts once err is set

	mu        sync.Mutex         // guards the fields below
	handle    int                // the number of the handle that holds the lock
	fence     uint64             // of that handle
	since     clock.Instant      // when that handle was granted the lock
	hooks     *Hooks             // of the call that was granted it
	pinned    bool               // the lock is not passed on any more: others may rely on the token or on its end
	shared    bool               // others may know the token
	start     clock.Instant      // when the request was sent that set the end
	length    time.Duration      // trusted from start until start + length
	renewed   clock.Instant      // when the newest request was sent that extended the key by the TTL or more
	renewAt   time.Duration      // when to renew, counted from renewed
	claimed   bool               // the lock was handed over, and is to be extended from its claim to the TTL
	recheckAt time.Duration      // when to check that the key is still ours, counted from granted; 0: never
	renewing  bool               // a renewal or a check is in flight
	timer     *time.Timer        // runs tick; stopped when the lease ends
	strong    *Lock              // the handle until the first tick, which saves short locks the weak pointer
	weak      weak.Pointer[Lock] // the same from then on; nil once the caller has dropped it
	trouble   error              // of the last extension; nil if it succeeded
	err       error              // why the lease ended, nil before
	newlyLost bool               // the lease was lost since mu was locked
	unlocked  bool               // Unlock was called
	passing   bool               // the lock is between two handles
	done      chan struct{}      // of the handle; nil until the first call of Done
	contexts  map[context.Context]context.CancelCauseFunc
}

// begin starts the lease of a request that was sent at start and answered before now, and returns its handle.
// If length is that of a claim, the lease is renewed soon.
func (l *lease) begin(start, now clock.Instant, length time.Duration) *Lock {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.strong = &Lock{lease: l, fence: l.fence}
	if l.hooks == nil {
		l.hooks = &l.r.cfg.hooks
	}
	l.granted, l.since, l.start, l.replied = start, start, start, now
	l.prolongLocked(start, length)
	l.renewedLocked(start)
	if length < clock.Validity(l.params.ttl, l.r.cfg.drift) {
		l.claimed, l.renewAt = true, now.Since(start)+claimLasts
	}
	l.timer = time.AfterFunc(l.nextLocked(now), l.tick)
	return l.strong
}

// serve begins the lease that Redis granted at now, or passes it on to another call, and returns the handle for r.
func (l *lease) serve(r *request, now clock.Instant, pass int, g *grant) *Lock {
	if pass == 0 {
		l.fence, l.recheckAt, l.hooks = g.fence, g.recheck, &r.cfg.hooks
		return l.begin(g.start, now, g.length)
	}
	l.mu.Lock()
	defer l.unlock()
	if l.fence > 0 {
		l.fence++
	}
	l.passing, l.since, l.hooks = false, now, &r.cfg.hooks
	l.strong = &Lock{lease: l, number: l.handle, fence: l.fence}
	l.newlyLost = l.err != nil // while it was between two calls
	return l.strong
}

// handed returns the grant of a claim.
func (l *lease) handed(g handoff.Grant) grant {
	drift := l.r.cfg.drift
	return grant{start: l.watch.Started(g, drift), length: clock.Validity(l.claim, drift), fence: g.Tick * fencesOfTick}
}

// claimLasts is how long a handed lock is held before its claim is extended to the TTL. Shorter holds save the command.
const claimLasts = 20 * time.Millisecond

// prolongLocked lets the lease last until start + length. It never shortens the lease and never passes the limit of
// WithMaxHold.
func (l *lease) prolongLocked(start clock.Instant, length time.Duration) {
	if l.r.cfg.maxHold > 0 {
		length = min(length, l.r.cfg.maxHold-start.Since(l.granted))
	}
	if start.Since(l.start)+length > l.length {
		l.start, l.length = start, length
	}
}

// renewedLocked notes that a request sent at start has extended the key by the TTL or more. However long the lease lasts
// then, it is renewed soon, so that a deleted key is noticed.
func (l *lease) renewedLocked(start clock.Instant) {
	if start.Mono.After(l.renewed.Mono) {
		l.renewed, l.renewAt = start, min(l.r.cfg.ttl/3, clock.Validity(l.r.cfg.ttl, l.r.cfg.drift)/2)
	}
}

// judgeLocked ends the lease if its time has passed, and returns why it ended. now was just read. It sends nothing.
func (l *lease) judgeLocked(now clock.Instant) error {
	if l.err == nil && now.Since(l.start) >= l.length {
		l.endLocked(l.expiredLocked(), true)
	}
	return l.err
}

// expiredLocked returns why the lease has ended: it lasted as long as WithMaxHold allows, or was not renewed in time.
func (l *lease) expiredLocked() error {
	switch {
	case l.r.cfg.maxHold > 0 && l.start.Since(l.granted)+l.length >= l.r.cfg.maxHold:
		return ErrMaxHold
	case !l.r.cfg.renew:
		return errExpired
	case l.trouble != nil:
		return fmt.Errorf("%w: not extended since %s: %s", errExpired, l.start.Mono.Format(clockTime), oneLine(l.trouble))
	case l.renewing:
		return fmt.Errorf("%w: no reply from Redis since %s", errExpired, l.start.Mono.Format(clockTime))
	}
	return fmt.Errorf("%w: the process was too late to renew it", errExpired)
}

var errExpired = fmt.Errorf("%w: expired", ErrLost)

const clockTime = "15:04:05.000"

// endLocked ends the lease with err, because it was lost or by Unlock. It is called once.
func (l *lease) endLocked(err error, lost bool) {
	l.err, l.newlyLost = err, lost
	l.strong = nil
	l.timer.Stop()
	l.endHandleLocked(err)
}

// endHandleLocked ends what the handle has given out.
func (l *lease) endHandleLocked(err error) {
	if l.done != nil {
		close(l.done)
	}
	for _, cancel := range l.contexts {
		cancel(err)
	}
	l.done, l.contexts = nil, nil
}

// unlock unlocks mu after the lease may have ended. If it was lost, unlock ends the turn and calls Hooks.Lost.
func (l *lease) unlock() {
	if !l.newlyLost {
		l.mu.Unlock()
		return
	}
	l.newlyLost = false
	w := l.line
	if l.passing { // Unlock tells the line
		w = nil
	}
	e := Event{Elapsed: l.engine.now().Since(l.since), Fence: l.fence, Err: l.err}
	l.mu.Unlock()
	if w != nil {
		w.lost(l)
	}
	l.fire(l.hooks.Lost, e)
}

// status judges the lease and returns why a handle ended.
func (l *lease) status(handle int) error {
	l.mu.Lock()
	defer l.unlock()
	if handle != l.handle {
		return ErrReleased
	}
	return l.judgeLocked(l.engine.now())
}

// left returns what is left of the lease at now, or 0 if it has ended.
func (l *lease) left(now clock.Instant) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return 0
	}
	return max(l.length-now.Since(l.start), 0)
}

// end ends the lease with the err of the other side of a migration, unless it or the handle has ended.
func (l *lease) end(handle int, err error) {
	l.mu.Lock()
	defer l.unlock()
	if handle == l.handle && l.err == nil {
		l.endLocked(err, true)
	}
}

// share returns the token for others, which pins the lease, or "" if the handle was passed on.
func (l *lease) share(handle int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if handle != l.handle {
		return ""
	}
	l.pinned, l.shared = true, true
	return l.params.token
}

// pin ends the turn if the lease has the token, which another handle is about to adopt.
func (l *lease) pin(token string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pinned = l.pinned || l.params.token == token
}

// refusal returns what this process knows of the lock that it holds.
func (l *lease) refusal() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	left := max(l.length-l.engine.now().Since(l.start), 0)
	return &HeldError{Owner: ownerOf(l.params.token), TTL: left, ours: true, err: ErrNotAcquired}
}

// closed is the Done channel of handles that have ended.
var closed = make(chan struct{})

func init() { close(closed) }

func (l *lease) doneChan(handle int) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if handle != l.handle || l.err != nil {
		return closed
	}
	if l.done == nil {
		l.done = make(chan struct{})
	}
	return l.done
}

// holding is the value of the ctx of a lock: which lock that is, and those of the contexts around it.
type holding struct {
	lease  *lease
	handle int
	outer  *holding
}

type holdingKey struct{}

// of returns a child of parent that says that its code runs under a handle.
func (h holding) of(parent context.Context) context.Context {
	h.outer, _ = parent.Value(holdingKey{}).(*holding)
	return context.WithValue(parent, holdingKey{}, &h)
}

// held returns an error if ctx is that of a lock of this Locker on the key of r: it ends with the lock, so the call would wait
// for itself.
func (e *engine) held(ctx context.Context, r *request) error {
	if e.strategy.habits().shares {
		return nil
	}
	h, _ := ctx.Value(holdingKey{}).(*holding)
	for ; h != nil; h = h.outer {
		if h.lease.engine.common == e.common && h.lease.r.place.key == r.place.key && h.lease.status(h.handle) == nil {
			return invalid("ctx is that of a lock on %q: Lock would wait for itself. Locks are not reentrant", r.key)
		}
	}
	return nil
}

// context returns a child of parent that ends with a handle. It does not judge the lease.
func (l *lease) context(parent context.Context, handle int) context.Context {
	ctx, cancel := context.WithCancelCause(holding{lease: l, handle: handle}.of(parent))
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case handle != l.handle:
		cancel(ErrReleased)
		return ctx
	case l.err != nil:
		cancel(l.err)
		return ctx
	}
	if l.contexts == nil {
		l.contexts = make(map[context.Context]context.CancelCauseFunc)
	}
	l.contexts[ctx] = cancel
	// It runs when ctx ends, at the latest with the handle.
	context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.contexts, ctx)
		cancel(nil)
	})
	return ctx
}

func (l *lease) until() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.start.Mono.Add(l.length)
}

// fire adds the lock to an event, which has the fence, and calls a hook with it.
func (l *lease) fire(hook func(Event), e Event) {
	if hook != nil {
		e.Strategy, e.Key = l.engine.strategy.name(), l.r.key
		e.Owner, e.Err = ownerOf(l.params.token), marked(e.Err)
		hook(e)
	}
}
