package redlatch

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	core "github.com/redlatch/redlatch/internal/lease"
)

// release ends a handle. It passes the lock on within the process, or ends the lease and gives the key back, whatever has
// become of the lease and of ctx. If after is set, nobody else gets the key within that time. It waits for the release and for
// an extension in flight, which fails if it reaches Redis after the release. If the lease was lost and others may know the
// token, the key is left alone: another handle may hold it.
func (l *lease) release(ctx context.Context, handle int, after time.Duration) error {
	l.mu.Lock()
	now := l.engine.now()
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
		replied = l.engine.now()
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

// giveBack has the line pass the lock on, or sends the release p and waits for its outcome. If that keeps the key, it is handed on
// when the time to keep it has passed. The turn of a lock that was lost has ended, so the line is not asked.
func (l *lease) giveBack(ctx context.Context, what core.Release, p *params) (passed bool, err error) {
	w := l.engine.wait()
	if l.line == nil || what == core.Clear {
		l.send(ctx, p, w.done)
	} else if !l.line.handBack(ctx, l, what == core.Pass, p, w.done) {
		l.engine.waits.Put(w)
		return true, nil
	}
	got := <-w.reply
	l.engine.waits.Put(w)
	if got.wanted {
		l.engine.lines.rest(l.r.place.key, l.r.cfg.longest)
	}
	if p.keep > 0 && !errors.Is(got.err, ErrLost) { // posts, and ends
		keeper := p.releasing("", 0)
		keeper.token, keeper.ballot = keeperPrefix+p.token, nil
		time.AfterFunc(p.keep, func() { l.engine.strategy.do(ctx, toRelease, &keeper, ignored) })
	}
	return false, got.err
}

// notPassed ends the lease of a turn that was not passed on.
func (l *lease) notPassed() {
	l.mu.Lock()
	l.core.NotPassed()
	_ = l.unlock()
}

// send sends the release p. If an earlier send of the acquire may still be carried out, it sends another when that is over, and
// the first has returned: a release that was overtaken would find the key gone.
func (l *lease) send(ctx context.Context, p *params, done func(reply)) {
	first := done
	if d := time.Until(l.unclear); d > 0 {
		again := p.releasing(p.entry, max(p.keep-d, 0))
		first = func(got reply) {
			done(got)
			time.AfterFunc(time.Until(l.unclear), func() { l.engine.strategy.do(ctx, toRelease, &again, ignored) }) // posts, and ends
		}
	}
	l.engine.strategy.do(ctx, toRelease, p, first)
}

func ignored(reply) {}

// keptLocked reports whether the caller has the handle.
func (l *lease) keptLocked() bool { return l.young != nil || l.weak.Value() != nil }

// tick runs when the timer fires.
func (l *lease) tick() {
	now := l.engine.now()
	l.mu.Lock()
	kind := l.core.Tick(now, l.keptLocked())
	if kind != core.Nothing {
		l.running.Add(1)
	}
	if l.core.Judge(now) {
		l.timer.Reset(l.core.Next(now, l.keptLocked()))
	}
	_ = l.unlock()
	if kind != core.Nothing {
		_ = l.extended(context.Background(), kind, 0) // hooks report a failure, and tick tries again
	}
}

// extend makes the lease last for ttl from now, for Lock.Extend.
func (l *lease) extend(ctx context.Context, handle int, ttl time.Duration) error {
	if !l.lockFor(handle) {
		return ErrReleased
	}
	l.core.Settle()
	if l.core.Judge(l.engine.now()) {
		l.running.Add(1)
	}
	if err := l.unlock(); err != nil {
		return err
	}
	return l.extended(ctx, core.Call, ttl)
}

// An extension is one command that extends a lease.
type extension struct {
	core.Extension
	params
}

// extended sends an extension. Its caller has added it to l.running while the lease was held. If ctx ends first, the extension
// goes on.
func (l *lease) extended(ctx context.Context, kind core.Kind, ttl time.Duration) error {
	x := &extension{params: l.params}
	l.mu.Lock()
	x.Extension = l.core.Send(kind, ttl, l.engine.now())
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
	now := l.engine.now()
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
	l.fire(hook, Event{Elapsed: trip, Took: trip, Renewal: x.Kind != core.Call, Fence: x.fence, Err: err})
	return err
}
