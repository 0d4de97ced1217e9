package redlatch

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
	"weak"

	"github.com/redlatch/redlatch/internal/clock"
	core "github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/tokens"
)

// A lease is a lock that an attempt was granted. It belongs to the process. A [Lock] is a handle on
// it. Unlock may pass the lock on within the process: that ends one handle and begins another. The
// core decides, see internal/lease.
type lease struct {
	*attempt
	running sync.WaitGroup // extensions in flight; none starts once the lease has ended

	mu   sync.Mutex // guards the fields below
	core core.Lease
	newest
	alarm *alarm // runs tick; stopped when the lease ends
	err   error  // why the lease ended, nil before
}

// An alarm is a timer that runs the tick of a lease.
type alarm struct {
	*time.Timer
	lease *lease
}

// alarm returns the alarm of l, to fire after d. One that was stopped before it fired is used
// again, which saves three allocations.
func (e *engine) alarm(l *lease, d time.Duration) *alarm {
	a, spare := e.alarms.Get().(*alarm)
	if !spare {
		a = &alarm{lease: l}
		a.Timer = time.AfterFunc(d, func() { a.lease.tick() }) // Unlock waits for what it sends
		return a
	}
	a.lease = l
	a.Reset(d)
	return a
}

// stopLocked stops the alarm. While the lease is young, nothing but tick sets it again: if Stop has
// stopped it then, no tick is under way.
func (l *lease) stopLocked() {
	if a := l.alarm; a.Stop() && l.core.Young() {
		a.lease = nil
		l.alarms.Put(a)
	}
	l.alarm = nil
}

// serve begins the lease with a grant, which is known at now, or passes it on. It returns the handle
// for r.
func (l *lease) serve(r *request, g grant, now clock.Instant, pass int) *Lock {
	l.mu.Lock()
	k := &Lock{lease: l, fence: g.tick * fencesOfTick}
	since := g.start
	if pass == 0 {
		l.core.Begin(g.start, now, g.length, g.recheck)
		l.alarm = l.engine.alarm(l, l.core.Next(now, true))
	} else {
		k.number, k.fence, since = l.core.Serve(), l.fence+min(l.fence, 1), now // a fence of 0 is none
	}
	l.newest = newest{since: since, fence: k.fence, hooks: &r.cfg.hooks, young: k}
	_ = l.settle()
	return k
}

// settle unlocks mu, and returns why the lease has ended. An end since mu was locked is carried
// out: that of what the handle has given out, and after a loss, that of the turn, with a call of
// Hooks.Lost.
func (l *lease) settle() error {
	if l.young != nil && !l.core.Young() {
		l.young, l.weak = nil, weak.Make(l.young)
	}
	why, start, trouble := l.core.Ended()
	if err := l.err; err != nil || why == core.None {
		l.mu.Unlock()
		return err
	}
	err := endError(why, start, trouble)
	l.err, l.young = err, nil
	l.stopLocked()
	l.endHandleLocked(err)
	h := l.newest
	l.mu.Unlock()
	if why == core.Unlocked {
		return err
	}
	e := Event{Elapsed: clock.Now().Since(h.since), Fence: h.fence, Err: err}
	if l.line != nil {
		l.line.lost(l.attempt)
	}
	l.cohort.lost(l.attempt)
	l.fire(h.hooks.Lost, e)
	return err
}

var errExpired = fmt.Errorf("%w: expired", ErrLost)

// endError returns the error of a lease that ended after the extension, or the grant, of start.
func endError(why core.Why, start clock.Mono, trouble error) error {
	const clockTime = "15:04:05.000"
	switch why {
	case core.Unlocked:
		return ErrReleased
	case core.MaxHold:
		return ErrMaxHold
	case core.Gone:
		return trouble
	case core.Failing:
		return fmt.Errorf("%w: not extended since %s: %s", errExpired, start.Time().Format(clockTime), oneLine(trouble))
	case core.Silent:
		return fmt.Errorf("%w: no reply from Redis since %s", errExpired, start.Time().Format(clockTime))
	case core.Late:
		return fmt.Errorf("%w: the process was too late to renew it", errExpired)
	}
	return errExpired
}

// fire adds the lock to an event, which has the fence, and calls a hook with it.
func (l *lease) fire(hook func(Event), e Event) {
	if hook != nil {
		e.Strategy, e.Key = l.name, l.r.key
		e.Owner, e.Err = tokens.Owner(l.token), marked(e.Err)
		hook(e)
	}
}

// release ends a handle. It passes the lock on within the process, or ends the lease and gives the
// key back, whatever has become of the lease and of ctx. If after is set, nobody else gets the key
// within that time. It waits for the release and for an extension in flight, which fails if it
// reaches Redis after the release. If the lease was lost and others may know the token, the key is
// left alone: another handle may hold it.
func (l *lease) release(ctx context.Context, handle int, after time.Duration) error {
	l.mu.Lock()
	now := clock.Now()
	what, keep := l.core.Unlock(handle, now, after)
	h := l.newest
	if what == core.Pass {
		l.endHandleLocked(ErrReleased)
	}
	ended := l.settle()
	if what == core.Refuse {
		return ErrReleased
	}
	var passed bool
	var err error
	holder, keep := l.cohort.leave(l.attempt, now, keep)
	switch {
	case holder == nil: // other readers have the permit
		passed = true
	case what != core.GiveNothing:
		passed, err = holder.lease.passOn(ctx, now, what, keep)
	}
	replied := now
	if !passed {
		replied = clock.Now()
		l.running.Wait()
	}
	if what == core.GiveIfThere || what == core.GiveNothing {
		return ended
	}
	hook := h.hooks.Released
	if errors.Is(err, ErrLost) {
		hook = h.hooks.Lost
	}
	l.fire(hook, Event{Elapsed: replied.Since(h.since), Took: replied.Since(now), Fence: h.fence, Err: err})
	return err
}

// passOn has the line pass the lock on, or sends the release and waits for its outcome. If that
// keeps the key, the first in the queue asks for it when that time has passed. The turn of a lock
// that was lost has ended, so the line is not asked.
func (l *lease) passOn(
	ctx context.Context, now clock.Instant, what core.Release, keep time.Duration,
) (passed bool, err error) {
	w := l.wait()
	back := release{params: l.acquire.releasing(now.Mono, keep), ctx: ctx, done: w.done}
	switch {
	case l.line == nil, what == core.GiveIfThere:
		l.back = back
		l.giveBack()
	case l.line.unlock(l.attempt, what == core.Pass, &back):
		l.waits.Put(w)
		return true, nil
	case what == core.Pass:
		l.mu.Lock()
		l.core.NotPassed()
		_ = l.settle()
	}
	got := <-w.reply
	l.waits.Put(w)
	if got.wanted {
		l.yield(l.key, l.r.cfg.longest)
	}
	return false, got.err
}

// tick runs when the timer fires.
func (l *lease) tick() {
	now := clock.Now()
	l.mu.Lock()
	renew := l.core.Tick(now, l.keptLocked())
	if renew {
		l.running.Add(1)
	}
	if l.core.Judge(now) {
		l.alarm.Reset(l.core.Next(now, l.keptLocked()))
	}
	_ = l.settle()
	if renew {
		_ = l.sendExtension(context.Background(), 0) // hooks report a failure, and tick tries again
	}
}

// extend makes the lease last for ttl from now, for Lock.Extend.
func (l *lease) extend(ctx context.Context, handle int, ttl time.Duration) error {
	if !l.lockFor(handle) {
		return ErrReleased
	}
	l.core.Settle()
	if l.core.Judge(clock.Now()) {
		l.running.Add(1)
	}
	if err := l.settle(); err != nil {
		return err
	}
	return l.sendExtension(ctx, ttl)
}

// An extension is one command that extends a lease.
type extension struct {
	core.Extension
	params
	restoring
}

// sendExtension sends an extension. Its caller has added it to l.running while the lease was held.
// If ctx ends first, the extension goes on.
func (l *lease) sendExtension(ctx context.Context, ttl time.Duration) error {
	x := &extension{params: params{identity: &l.identity}}
	l.mu.Lock()
	x.Extension = l.core.Send(ttl, clock.Now())
	x.fence, x.ms, x.restore = l.fence, x.Restore.Milliseconds(), &x.restoring
	l.mu.Unlock()
	x.ttl, x.ttlMS, x.timeout = x.TTL, x.TTL.Milliseconds(), x.Timeout
	got, abandoned := l.run(ctx, toExtend, &x.params, func(got reply) { _ = l.extensionDone(x, got.err) })
	if abandoned {
		return got.err
	}
	return l.extensionDone(x, got.err)
}

// extensionDone handles the outcome of an extension, and calls the hooks.
func (l *lease) extensionDone(x *extension, err error) error {
	l.mu.Lock()
	now := clock.Now()
	if l.core.Extended(&x.Extension, now, err, errors.Is(err, ErrLost), rand.Float64()) {
		l.alarm.Reset(l.core.Next(now, l.keptLocked()))
	}
	since := l.since
	l.running.Done() // before the hooks, which may call Unlock
	if ended := l.settle(); ended != nil {
		return ended
	}
	hook := l.hooks.Renewed
	if err != nil {
		hook = l.hooks.RenewFailed
	}
	l.fire(hook, Event{
		Elapsed: now.Since(since), Took: now.Since(x.Start), Renewal: x.Renewal, Fence: x.fence, Err: err,
	})
	return err
}
