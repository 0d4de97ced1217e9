package redlatch

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/inbox"
	core "github.com/redlatch/redlatch/internal/lease"
)

// A lease is a lock that was asked for with a token. It belongs to the process. A [Lock] is a handle on it. Unlock may pass the
// lock on within the process: that ends one handle and begins another. The core decides, see internal/lease.
type lease struct {
	engine *engine
	r      *request
	params params
	back   params   // of the release, once it is sent
	line   *waiters // that asks, or was granted the key; nil: the lock is not passed on
	lineToken

	unwanted atomic.Bool    // nobody waits for the grant any more
	unclear  time.Time      // until when an earlier send of the acquire may be carried out; zero: none
	running  sync.WaitGroup // extensions in flight; none starts once the lease has ended

	mu   sync.Mutex // guards the fields below
	core core.Lease
	hand
	timer *time.Timer // runs tick; stopped when the lease ends
	err   error       // why the lease ended, nil before
}

// A lineToken is the token of a line. lines.mu guards it, and the params, until it is granted.
type lineToken struct {
	number uint64          // of the token
	asked  clock.Instant   // when the newest acquire was sent
	ctx    context.Context //nolint:containedctx // of the caller for whom it was sent, for its values
	claim  time.Duration   // of the entry
	watch  core.Watch      // of the entry
}

// serve begins the lease that Redis granted, which is known at now, or passes it on. It returns the handle for r.
func (l *lease) serve(r *request, now clock.Instant, pass int, g *grant) *Lock {
	l.mu.Lock()
	k := &Lock{lease: l, fence: g.tick * fencesOfTick}
	since := g.start
	if pass == 0 {
		l.core.Begin(g.start, now, g.length, g.recheck)
		l.timer = time.AfterFunc(l.core.Next(now, true), l.tick) // Unlock waits for what it sends
	} else {
		k.number, k.fence, since = l.core.Serve(), l.fence+min(l.fence, 1), now // a fence of 0 is none
	}
	l.hand = hand{since: since, fence: k.fence, hooks: &r.cfg.hooks, young: k}
	_ = l.unlock()
	return k
}

// granted returns the grant of a reply to a command that was sent at start.
func (l *lease) granted(start clock.Instant, got reply) grant {
	return grant{start, clock.Validity(l.params.ttl, l.r.cfg.drift), got.tick, got.recheckAfter}
}

// handed returns the grant of a claim.
func (l *lease) handed(g inbox.Grant) grant {
	drift := l.r.cfg.drift
	return grant{start: l.watch.Started(g.At, g.Arrived, drift), length: clock.Validity(l.claim, drift), tick: g.Tick}
}

// unlock unlocks mu, and returns why the lease has ended. An end since mu was locked is carried out: that of what the handle has
// given out, and after a loss, that of the turn, with a call of Hooks.Lost.
func (l *lease) unlock() error {
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
	l.timer.Stop()
	l.endHandleLocked(err)
	h := l.hand
	l.mu.Unlock()
	if why == core.Unlocked {
		return err
	}
	e := Event{Elapsed: clock.Now().Since(h.since), Fence: h.fence, Err: err}
	if l.line != nil {
		l.line.lost(l)
	}
	l.fire(h.hooks.Lost, e)
	return err
}

var errExpired = fmt.Errorf("%w: expired", ErrLost)

// endError returns the error of a lease that ended after the extension, or the grant, of start.
func endError(why core.Why, start time.Time, trouble error) error {
	const clockTime = "15:04:05.000"
	switch why {
	case core.Unlocked:
		return ErrReleased
	case core.MaxHold:
		return ErrMaxHold
	case core.Gone:
		return trouble
	case core.Failing:
		return fmt.Errorf("%w: not extended since %s: %s", errExpired, start.Format(clockTime), oneLine(trouble))
	case core.Silent:
		return fmt.Errorf("%w: no reply from Redis since %s", errExpired, start.Format(clockTime))
	case core.Late:
		return fmt.Errorf("%w: the process was too late to renew it", errExpired)
	}
	return errExpired
}

// fire adds the lock to an event, which has the fence, and calls a hook with it.
func (l *lease) fire(hook func(Event), e Event) {
	if hook != nil {
		e.Strategy, e.Key = l.engine.name, l.r.key
		e.Owner, e.Err = ownerOf(l.params.token), marked(e.Err)
		hook(e)
	}
}

// release ends a handle. It passes the lock on within the process, or ends the lease and gives the key back, whatever has become
// of the lease and of ctx. If after is set, nobody else gets the key within that time. It waits for the release and for an
// extension in flight, which fails if it reaches Redis after the release. If the lease was lost and others may know the token,
// the key is left alone: another handle may hold it.
func (l *lease) release(ctx context.Context, handle int, after time.Duration) error {
	l.mu.Lock()
	now := clock.Now()
	what, keep := l.core.Unlock(handle, now, after)
	h := l.hand
	if what == core.Pass {
		l.endHandleLocked(ErrReleased)
	}
	ended := l.unlock()
	if what == core.Refuse {
		return ErrReleased
	}
	var passed bool
	var err error
	if what != core.Leave {
		l.back = l.params.releasing("", keep)
		passed, err = l.giveBack(ctx, what, &l.back)
	}
	replied := now
	if !passed {
		replied = clock.Now()
		l.running.Wait()
	}
	if what == core.Clear || what == core.Leave {
		return ended
	}
	hook := h.hooks.Released
	if errors.Is(err, ErrLost) {
		hook = h.hooks.Lost
	}
	l.fire(hook, Event{Elapsed: replied.Since(h.since), Took: replied.Since(now), Fence: h.fence, Err: err})
	return err
}

// giveBack has the line pass the lock on, or sends the release p and waits for its outcome. If that keeps the key, the first in
// the queue asks for it when that time has passed. The turn of a lock that was lost has ended, so the line is not asked.
func (l *lease) giveBack(ctx context.Context, what core.Release, p *params) (passed bool, err error) {
	w := l.engine.wait()
	switch {
	case l.line == nil, what == core.Clear:
		l.send(ctx, p, w.done)
	case l.line.handBack(ctx, l, what == core.Pass, p, w.done):
		l.engine.waits.Put(w)
		return true, nil
	case what == core.Pass:
		l.mu.Lock()
		l.core.NotPassed()
		_ = l.unlock()
	}
	got := <-w.reply
	l.engine.waits.Put(w)
	if got.wanted {
		l.engine.rest(l.r.place.key, l.r.cfg.longest)
	}
	return false, got.err
}

// send sends the release p. If an earlier send of the acquire may still be carried out, it sends another when that is over, and
// the first has returned: a release that was overtaken would find the key gone.
func (l *lease) send(ctx context.Context, p *params, done func(reply)) {
	first := done
	if d := time.Until(l.unclear); d > 0 {
		again := *p
		again.entry, again.next = l.params.entry, "" // the earlier send may have queued the entry
		first = func(got reply) {
			done(got)
			time.AfterFunc(time.Until(l.unclear), func() { l.engine.strategy.do(ctx, toRelease, &again, ignored) }) // posts, and ends
		}
	}
	l.engine.strategy.do(ctx, toRelease, p, first)
}

func ignored(reply) {}

// tick runs when the timer fires.
func (l *lease) tick() {
	now := clock.Now()
	l.mu.Lock()
	renew := l.core.Tick(now, l.keptLocked())
	if renew {
		l.running.Add(1)
	}
	if l.core.Judge(now) {
		l.timer.Reset(l.core.Next(now, l.keptLocked()))
	}
	_ = l.unlock()
	if renew {
		_ = l.extended(context.Background(), 0) // hooks report a failure, and tick tries again
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
	if err := l.unlock(); err != nil {
		return err
	}
	return l.extended(ctx, ttl)
}

// An extension is one command that extends a lease.
type extension struct {
	core.Extension
	params
}

// extended sends an extension. Its caller has added it to l.running while the lease was held. If ctx ends first, the extension
// goes on.
func (l *lease) extended(ctx context.Context, ttl time.Duration) error {
	x := &extension{params: l.params}
	l.mu.Lock()
	x.Extension = l.core.Send(ttl, clock.Now())
	x.fence = l.fence
	l.mu.Unlock()
	x.ttl, x.ttlMS, x.timeout, x.restoreMS = x.TTL, x.TTL.Milliseconds(), x.Timeout, x.Restore.Milliseconds()
	got, left := l.engine.run(ctx, toExtend, &x.params, func(got reply) { _ = l.confirmed(x, got.err) })
	if left {
		return got.err
	}
	return l.confirmed(x, got.err)
}

// confirmed handles the outcome of an extension, and calls the hooks.
func (l *lease) confirmed(x *extension, err error) error {
	l.mu.Lock()
	now := clock.Now()
	if l.core.Extended(&x.Extension, now, err, errors.Is(err, ErrLost), rand.Float64()) {
		l.timer.Reset(l.core.Next(now, l.keptLocked()))
	}
	l.running.Done() // before the hooks, which may call Unlock
	if ended := l.unlock(); ended != nil {
		return ended
	}
	trip := now.Since(x.Start)
	hook := l.hooks.Renewed
	if err != nil {
		hook = l.hooks.RenewFailed
	}
	l.fire(hook, Event{Elapsed: trip, Took: trip, Renewal: x.Renewal, Fence: x.fence, Err: err})
	return err
}
