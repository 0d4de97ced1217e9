package redlatch

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	core "github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/wire"
)

// A lease is a lock that an attempt was granted. It belongs to the process. A [Lock] is a handle on
// it. Unlock may pass the lock on within the process: that ends one handle and begins another.
// Readers share a lease: each has a seat. The core decides, see internal/lease.
type lease struct {
	attempt *attempt
	running sync.WaitGroup // extensions in flight; none starts once the lease has ended

	mu     sync.Mutex // guards the fields below
	core   core.Lease
	first  seat        // of the handle, or of the first reader
	joined []*seat     // of other readers
	timer  *time.Timer // runs renew; stopped when the lease ends
	err    error       // why the lease ended, nil before
}

// serve begins the lease with the grant of its attempt, which is known at now, or passes it on. It
// returns the handle for r.
func (l *lease) serve(ctx context.Context, r *request, now clock.Instant, pass int) *Lock {
	s, g := &l.first, &l.attempt.grant // which does not change any more
	k := &Lock{handle: handle{lease: l, seat: s}}
	if pass == 0 {
		l.open()
	}
	_ = l.change(caller{s, ctx}, func() {
		if pass > 0 {
			k.handle.number = l.core.Serve(&s.core)
			s.take(k, r, now)
			return
		}
		l.core.Begin(g.start, now, g.length, g.recheck)
		l.timer = time.AfterFunc(l.core.Next(now, true), l.renew) // Unlock waits for what it sends
		s.take(k, r, g.start)
	})
	return k
}

// fence returns the fence of the handle with a number.
func (l *lease) fence(number int) uint64 { return wire.Fence(l.attempt.grant.tick, number) }

// weakenLocked keeps only weak pointers to the handles: the lease is not young any more.
func (l *lease) weakenLocked() {
	for s := range l.seatsLocked {
		s.weaken()
	}
}

// inUseLocked reports whether a caller has a handle.
func (l *lease) inUseLocked() bool {
	for s := range l.seatsLocked {
		if s.inUse() {
			return true
		}
	}
	return false
}

// seatsLocked yields the seats of the handles that have not left.
func (l *lease) seatsLocked(yield func(*seat) bool) {
	if !l.first.core.Left() && !yield(&l.first) {
		return
	}
	for _, s := range l.joined {
		if !s.core.Left() && !yield(s) {
			return
		}
	}
}

// change calls f with mu locked, and returns why the lease has ended. If f has ended it, change ends
// what the handles have given out. After a loss it also ends the turn, and calls Hooks.Lost for each
// handle: in this goroutine for the caller's.
func (l *lease) change(by caller, f func()) error {
	l.mu.Lock()
	f()
	why, start, trouble := l.core.Ended()
	if err := l.err; err != nil || why == core.None {
		l.mu.Unlock()
		return err
	}
	err := endError(why, start, trouble)
	l.err = err
	l.timer.Stop()
	var lost []seat
	var mine seat
	for s := range l.seatsLocked {
		s.end(err)
		switch {
		case why == core.Unlocked:
		case s == by.seat:
			mine = *s
		default:
			lost = append(lost, *s)
		}
	}
	l.mu.Unlock()
	l.close()
	if why == core.Unlocked {
		return err
	}
	l.attempt.engine.loses(l.attempt)
	if w := l.attempt.line; w != nil {
		w.lost(l.attempt)
	}
	for _, s := range lost {
		if by.seat == nil && len(lost) == 1 {
			l.reportLost(nobody.context(), s, err)
		} else {
			go l.reportLost(nobody.context(), s, err) // ends with the hook
		}
	}
	l.reportLost(by.context(), mine, err)
	return err
}

// fire adds the lock to an event, which has the fence, and calls a hook with it.
func (l *lease) fire(ctx context.Context, hook func(context.Context, Event), e Event) {
	if hook != nil {
		a := l.attempt
		e.Strategy, e.Key = a.engine.name, a.id.key
		e.Owner, e.Err = wire.Owner(a.id.token), asOutage(e.Err)
		hook(ctx, e)
	}
}

// reportLost calls Hooks.Lost of a seat whose lock was lost. An empty seat has no hooks.
func (l *lease) reportLost(ctx context.Context, s seat, err error) {
	if s.hooks != nil {
		e := Event{Elapsed: clock.Now().Since(s.since), Fence: l.fence(s.core.Number()), Err: err}
		l.fire(ctx, s.hooks.Lost, e)
	}
}

// giveBack has the line pass the lock on, or sends a release and waits for its outcome. A lost lock
// has no turn left, and readers have none, so their release goes straight to Redis.
func (l *lease) giveBack(
	ctx context.Context, now clock.Instant, what core.Release, keep time.Duration,
) (passed bool, err error) {
	a := l.attempt
	ends, inRedis := a.engine.endsKeep(keep), keep
	if ends {
		inRedis += keepMargin
	}
	var b *release
	if a.line != nil && (what == core.Pass || what == core.Give) {
		b = a.line.unlock(ctx, a, now, what == core.Pass, inRedis)
	} else {
		b = a.releasing(ctx, now.Mono, inRedis)
		a.giveBack(b)
	}
	switch {
	case b == nil:
		return true, nil
	case what == core.Pass:
		_ = l.change(nobody, l.core.NotPassed)
	}
	<-b.came
	b.loan.over()
	got := b.reply
	if got.contended {
		a.engine.yield(a.id.lock, a.engine.longestYield(a.request.cfg))
	}
	if ends && !errors.Is(got.err, ErrLost) {
		a.endKeep(now.Mono.Add(keep)) //nolint:contextcheck // the call has ended by then
	}
	return false, got.err
}

// leaveAfter extends the lease by keep, for a handle that leaves it to others and keeps others out. It
// returns how to go on. If another handle has given the key back by then, nothing is left to do.
func (l *lease) leaveAfter(ctx context.Context, by caller, keep time.Duration) (core.Release, time.Duration, error) {
	err := l.sendExtension(context.WithoutCancel(ctx), by, 0, keep)
	if errors.Is(err, ErrReleased) { // as the handle has
		err = nil
	}
	var what core.Release
	_ = l.change(nobody, func() { what, keep = l.core.Leave(clock.Now()) })
	return what, keep, err
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

// renew runs when the timer fires.
func (l *lease) renew() {
	now, renew := clock.Now(), false
	_ = l.change(nobody, func() {
		renew = l.core.Tick(now, l.inUseLocked())
		l.weakenLocked()
		if renew {
			l.running.Add(1)
		}
		if l.core.Judge(now) {
			l.timer.Reset(l.core.Next(now, l.inUseLocked()))
		}
	})
	if renew {
		_ = l.sendExtension(context.Background(), nobody, 0, 0) // hooks report a failure, and the timer fires again
	}
}

// An extension is one command that extends a lease.
type extension struct {
	core.Extension
	params
	restoring restoring
	loan      loan   // of the ctx of the call
	by        caller // nobody: it is a renewal
}

// sendExtension sends an extension, see core.Lease.Send, and waits for its outcome until ctx ends. Its
// caller has added it to l.running while the lease was held.
func (l *lease) sendExtension(ctx context.Context, by caller, ttl, keep time.Duration) error {
	x := &extension{params: params{identity: &l.attempt.id}, by: by}
	x.params.restoring = &x.restoring
	l.mu.Lock()
	x.Extension = l.core.Send(ttl, keep, clock.Now())
	x.restoring = restoring{l.fence(l.first.core.Number()), x.Restore}
	l.mu.Unlock()
	x.ttl, x.timeout = x.TTL, x.Timeout
	defer x.loan.over()
	got, late := l.attempt.engine.run(x.loan.lend(ctx), x.Start.Mono, toExtend, &x.params)
	if late != nil {
		x.by.ctx = nil //nolint:fatcontext // the call returns now
		late.then(func(got reply) { _ = l.extensionDone(x, got.err) })
		return got.err
	}
	return l.extensionDone(x, got.err)
}

// extensionDone handles the outcome of an extension, and calls the hooks of the handle that asked for
// it. For a renewal it calls those of one handle.
func (l *lease) extensionDone(x *extension, err error) error {
	var now clock.Instant
	var s seat
	ended := l.change(x.by, func() {
		now = clock.Now()
		if l.core.Extended(&x.Extension, now, err, errors.Is(err, ErrLost), rand.Float64()) {
			l.timer.Reset(l.core.Next(now, l.inUseLocked()))
		}
		for taken := range l.seatsLocked {
			if x.by.seat == nil || x.by.seat == taken {
				s = *taken
				break
			}
		}
		l.running.Done() // before the hooks, which may call Unlock
	})
	if ended != nil {
		return ended
	}
	if s.hooks == nil { // the handle has left
		return cmp.Or(err, ErrReleased)
	}
	hook := s.hooks.Renewed
	if err != nil {
		hook = s.hooks.RenewFailed
	}
	l.fire(x.by.context(), hook, Event{
		Elapsed: now.Since(s.since), Took: now.Since(x.Start), Renewal: x.Renewal, again: x.Again, Fence: x.restoring.fence, Err: err,
	})
	return err
}
