package redlatch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/redlatch/redlatch/internal/clock"
)

// A lease is a granted lock: how long it is trusted, when it is renewed, and why it ended. It does not refer to the
// Lock of the caller, so that a dropped one ends. Its states, and those of the attempt before it:
//
//	asking ── granted ──> held ── expired, deleted, taken, WithMaxHold ──> lost
//	  │                    │  │                                             │
//	given up          Unlock  Unlock within WithMinHold                   Unlock
//	  ↓                    │  └──> kept ── confirmed, or it passed ─┐       │
//	refused                └─────> releasing <──────────────────────┼───────┘
//	                                   └── the release has ended ─> over
//
// refused: what the attempt took, or takes late, is released, unless the caller chose the token. lost: an adopter may
// rely on the token. If others may know it, the lock stays lost after Unlock. kept: Unlock was called within WithMinHold,
// and Redis has not confirmed that the keeper has replaced the token. err is nil in held, and set from lost, kept and
// releasing on.
type lease struct {
	*attempt
	fence uint64
	entry string // in the queue, if the lock was handed over; else empty

	granted clock.Instant  // when the acquire was sent
	replied clock.Instant  // when its reply came
	running sync.WaitGroup // extensions in flight; none starts once err is set
	shared  atomic.Bool    // others may know the token

	mu        sync.Mutex         // guards the fields below
	start     clock.Instant      // when the request was sent that set the end
	length    time.Duration      // trusted from start until start + length
	renewed   clock.Instant      // when the newest request was sent that extended the key by the TTL or more
	renewAt   time.Duration      // when to renew, counted from renewed
	recheckAt time.Duration      // when to check that the key is still ours, counted from granted; 0: never
	renewing  bool               // a renewal or a check is in flight
	timer     *time.Timer        // runs tick; stopped when the lease ends
	fresh     *Lock              // the caller's handle until the first tick, which saves short locks the weak pointer
	held      weak.Pointer[Lock] // the same from then on; nil once the caller has dropped it
	trouble   error              // of the last extension; nil if it succeeded
	err       error              // why the lease ended, nil before
	unlocked  bool               // Unlock was called
	done      chan struct{}      // nil until the first call of Done
	contexts  map[context.Context]context.CancelCauseFunc
}

// begin starts the lease of a request that was sent at start, and returns its handle.
func (l *lease) begin(start clock.Instant, length time.Duration) *Lock {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fresh = &Lock{lease: l}
	l.granted, l.start, l.replied = start, start, l.engine.now()
	l.state.become(held)
	l.prolongLocked(start, length)
	l.renewedLocked(start)
	l.timer = time.AfterFunc(l.nextLocked(), l.tick)
	return l.fresh
}

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

// judgeLocked ends the lease if its time has passed, and returns why it ended. It sends nothing.
func (l *lease) judgeLocked() error {
	if l.err == nil && l.engine.now().Since(l.start) >= l.length {
		l.endLocked(l.expiredLocked(), lost)
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
		return fmt.Errorf("%w: not extended since %s: %s", errExpired, l.start.Mono.Format(clockTime), line(l.trouble))
	case l.renewing:
		return fmt.Errorf("%w: no reply from Redis since %s", errExpired, l.start.Mono.Format(clockTime))
	}
	return fmt.Errorf("%w: the process was too late to renew it", errExpired)
}

var errExpired = fmt.Errorf("%w: expired", ErrLost)

const clockTime = "15:04:05.000"

// endLocked ends the lease with err, in the given state. It is called once.
func (l *lease) endLocked(err error, state int32) {
	l.err = err
	l.state.become(state)
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

// status judges the lease and returns why it ended. The caller that notices the end reports it.
func (l *lease) status() error {
	l.mu.Lock()
	before := l.err
	after := l.judgeLocked()
	l.mu.Unlock()
	l.reportLoss(before, after)
	return after
}

// whileHeld calls post with what is left of the lease, unless it has ended. The calls that post sends go before the
// release of Unlock. whileHeld neither ends the lease nor calls hooks.
func (l *lease) whileHeld(post func(left time.Duration)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if left := l.length - l.engine.now().Since(l.start); l.err == nil && left > 0 {
		post(left)
	}
}

// end ends the lease with the err of the other side of a migration, unless it has ended.
func (l *lease) end(err error) {
	l.mu.Lock()
	before := l.err
	if before == nil {
		l.endLocked(err, lost)
	}
	after := l.err
	l.mu.Unlock()
	l.reportLoss(before, after)
}

// reportLoss calls Hooks.Lost if the lease was lost between before and after. The entry of a lock that was handed
// over leaves the queue, so that the process is not taken for frozen.
func (l *lease) reportLoss(before, after error) {
	if before == nil && after != nil && !errors.Is(after, ErrReleased) && l.entry != "" {
		time.AfterFunc(0, l.dropEntry) // a goroutine; with go, linters would ask the callers of Err for a ctx
	}
	if before == nil && errors.Is(after, ErrLost) {
		l.fire(l.r.cfg.hooks.Lost, Event{Elapsed: l.engine.now().Since(l.granted), Err: after})
	}
}

// dropEntry takes the entry of a lock that was handed over out of the queue, and releases nothing.
func (l *lease) dropEntry() {
	p := &releaseParams{target: l.params.target, entry: l.entry}
	p.token = ""
	_, _ = l.engine.strategy.release(context.Background(), p)
}

// release ends the lease and gives the key back, whatever has become of the lease and of ctx. It waits for the
// release and for an extension in flight, which fails if it reaches Redis after the release. If the lease was lost and
// others may know the token, the key is left alone: another handle may hold it.
func (l *lease) release(ctx context.Context) error {
	l.mu.Lock()
	if l.unlocked {
		l.mu.Unlock()
		return ErrReleased
	}
	l.unlocked = true
	p := &releaseParams{target: l.params.target, entry: l.entry}
	before := l.err
	ended := l.judgeLocked()
	switch {
	case ended != nil && l.sharesToken():
		p = nil
	case ended != nil:
		l.state.become(releasing)
	default:
		if p.keep = l.toKeep(); p.keep > 0 {
			p.keeper = newKeeper()
			l.endLocked(ErrReleased, kept)
		} else {
			l.endLocked(ErrReleased, releasing)
		}
	}
	l.mu.Unlock()
	l.reportLoss(before, ended)

	begin := l.engine.now()
	var err error
	if p != nil {
		err = l.giveBack(ctx, p)
	}
	took := l.engine.now().Since(begin)
	if errors.Is(err, ErrLost) && l.state.undone.Load() {
		err = nil // the release that followed a late acquire has done it
	}
	l.running.Wait()
	e := Event{Elapsed: l.engine.now().Since(l.granted), Took: took, Err: err}
	switch {
	case ended != nil:
		return ended
	case errors.Is(err, ErrLost):
		l.fire(l.r.cfg.hooks.Lost, e)
	default:
		l.fire(l.r.cfg.hooks.Released, e)
	}
	return err
}

// giveBack sends the release p. If that keeps the key, it is handed on when the time to keep it has passed.
func (l *lease) giveBack(ctx context.Context, p *releaseParams) error {
	wanted, err := l.engine.strategy.release(detached(ctx), p)
	if wanted {
		l.engine.turns.Released(l.r.place.key, longestPause)
	}
	unknown := err != nil && !errors.Is(err, ErrLost)
	if p.keep > 0 && (err == nil || unknown) {
		time.AfterFunc(p.keep, func() { l.handOnLater(p) }) //nolint:contextcheck // the caller's ctx is over by then
	}
	if p.keep == 0 || !unknown {
		l.state.become(over)
	}
	return err
}

// toKeep returns how long the key must last after the release, see WithMinHold; 0: not at all. It is counted from the
// reply, which came after the grant, on the slower clock, and rounded up.
func (l *lease) toKeep() time.Duration {
	left := l.r.cfg.minHold - l.engine.now().AtLeast(l.replied)
	return max(left+time.Millisecond-1, 0).Truncate(time.Millisecond)
}

// handOnLater hands on what the release p has kept. The keeper may have just expired. If the outcome of p was unknown,
// the token may still keep the key; one that others may know is left to its TTL.
func (l *lease) handOnLater(p *releaseParams) {
	l.state.become(over)
	later := *p
	later.keep = 0
	if l.sharesToken() {
		later.token = ""
	}
	_, _ = l.engine.strategy.release(context.Background(), &later)
}

// sharesToken reports whether others may know the token, so that another handle may hold the lock by it.
func (l *lease) sharesToken() bool { return l.params.callerToken || l.shared.Load() }

func (l *lease) doneChan() <-chan struct{} {
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

// context returns a child of parent that ends with the lease. It does not judge the lease.
func (l *lease) context(parent context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(parent)
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
	// It runs when ctx ends, at the latest with the lease.
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

// fire adds the lock to an event and calls a hook with it.
func (l *lease) fire(hook func(Event), e Event) {
	if hook != nil {
		e.Strategy, e.Key, e.Fence = l.engine.strategy.name(), l.r.key, l.fence
		e.Owner, e.Err = ownerOf(l.params.token), marked(e.Err)
		hook(e)
	}
}
