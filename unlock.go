package redlatch

import (
	"context"
	"errors"
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
		passed, err = l.giveBack(ctx, what, l.params.releasing("", keep))
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
	unknown := got.err != nil && !errors.Is(got.err, ErrLost)
	if p.keep > 0 && (got.err == nil || unknown) {
		time.AfterFunc(p.keep, func() { l.handOnLater(p, unknown) }) //nolint:contextcheck // the caller's ctx is over by then
	}
	return false, got.err
}

// notPassed ends the lease of a turn that was not passed on.
func (l *lease) notPassed() {
	l.mu.Lock()
	l.core.NotPassed()
	_ = l.unlock()
}

// send sends the release p. If an earlier send of the acquire may still be carried out, it sends another when that is over.
func (l *lease) send(ctx context.Context, p *params, done func(reply)) {
	l.engine.strategy.do(ctx, toRelease, p, done)
	if d := time.Until(l.unclear); d > 0 {
		again := p.releasing(p.entry, max(p.keep-d, 0))
		time.AfterFunc(d, func() { l.engine.strategy.do(ctx, toRelease, again, ignored) }) // posts, and ends
	}
}

func ignored(reply) {}

// handOnLater hands on what the release p has kept. If the outcome of p is unknown, the token may still keep the key; one
// that others may know is left to its TTL.
func (l *lease) handOnLater(p *params, unknown bool) {
	ctx := context.Background()
	keeper := p.releasing("", 0)
	keeper.token, keeper.ballot = keeperPrefix+p.token, nil
	l.engine.strategy.do(ctx, toRelease, keeper, ignored)
	l.mu.Lock()
	unknown = unknown && !l.core.Shared()
	l.mu.Unlock()
	if unknown {
		l.engine.strategy.do(ctx, toRelease, p.releasing("", 0), ignored)
	}
}
