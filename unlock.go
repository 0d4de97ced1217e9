package redlatch

import (
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
)

// release ends a handle. It passes the lock on within the process, or ends the lease and gives the key back, whatever has
// become of the lease and of ctx. If after is set, nobody else gets the key within that time. It waits for the release and for
// an extension in flight, which fails if it reaches Redis after the release. If the lease was lost and others may know the
// token, the key is left alone: another handle may hold it.
func (l *lease) release(ctx context.Context, handle int, after time.Duration) error {
	l.mu.Lock()
	if l.unlocked || handle != l.handle {
		l.mu.Unlock()
		return ErrReleased
	}
	now := l.engine.now()
	ended := l.judgeLocked(now)
	since, fence, hooks := l.since, l.fence, l.hooks
	p := &releaseParams{target: &l.params.target}
	passable := false
	switch {
	case ended != nil:
		l.unlocked = true
	case after == 0 && l.passableLocked():
		passable, l.passing = true, true
		l.handle++
		l.endHandleLocked(ErrReleased)
	default:
		l.unlocked = true
		p.keep = l.toKeep(after)
		l.endLocked(ErrReleased, false)
	}
	shared := l.shared
	l.unlock()

	var err error
	switch {
	case ended == nil:
		var passed bool
		if passed, err = l.giveBack(ctx, l.line, passable, p); passed {
			l.fire(hooks.Released, Event{Elapsed: now.Since(since), Fence: fence})
			return nil
		}
	case !shared:
		_, err = l.giveBack(ctx, nil, false, p)
	}
	hook := hooks.Released
	if errors.Is(err, ErrLost) {
		hook = hooks.Lost
	}
	var replied clock.Instant
	if hook != nil {
		replied = l.engine.now()
	}
	l.running.Wait()
	if ended != nil {
		return ended
	}
	l.fire(hook, Event{Elapsed: replied.Since(since), Took: replied.Since(now), Fence: fence, Err: err})
	return err
}

// passableLocked reports whether the lease lets a turn pass the lock on. The first tick comes half-way to the renewal. From then
// on it does not, nor once others may rely on the token or on a lease that Extend has lengthened.
func (l *lease) passableLocked() bool {
	return l.line != nil && l.line.Passes > 0 && !l.pinned && l.strong != nil
}

// giveBack has the line w pass the lock on, or sends the release p and waits for its outcome. If that keeps the key, it is handed on
// when the time to keep it has passed.
func (l *lease) giveBack(ctx context.Context, w *waiters, passable bool, p *releaseParams) (passed bool, err error) {
	releases := &l.engine.releases
	wait := releases.get()
	if w == nil {
		l.send(ctx, p, wait.done)
	} else if !w.handBack(ctx, l, passable, p, wait.done) {
		releases.Put(wait)
		return true, nil
	}
	o := <-wait.outcome
	releases.Put(wait)
	if o.value.wanted {
		l.engine.lines.rest(l.r.place.key, l.r.cfg.longest)
	}
	unknown := o.err != nil && !errors.Is(o.err, ErrLost)
	if p.keep > 0 && (o.err == nil || unknown) {
		time.AfterFunc(p.keep, func() { l.handOnLater(p, unknown) }) //nolint:contextcheck // the caller's ctx is over by then
	}
	return false, o.err
}

// notPassed ends the lease of a turn that was not passed on.
func (l *lease) notPassed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.handle--
	l.passing, l.unlocked = false, true
	if l.err == nil {
		l.endLocked(ErrReleased, false)
	}
}

// send sends the release p. If an earlier send of the acquire may still be carried out, it sends another when that is over.
func (l *lease) send(ctx context.Context, p *releaseParams, done func(releaseReply, error)) {
	l.engine.strategy.release(ctx, p, done)
	if d := time.Until(l.unclear); d > 0 {
		again := &releaseParams{target: p.target, entry: p.entry, keep: max(p.keep-d, 0)}
		time.AfterFunc(d, func() { l.engine.strategy.release(ctx, again, ignored) }) // posts, and ends
	}
}

func ignored(releaseReply, error) {}

// toKeep returns how long others must be kept out after the release: for the time after, and until the minimum hold has
// passed, see WithMinHold; 0: not at all. That is counted from the reply, which came after the grant, on the slower clock,
// and rounded up.
func (l *lease) toKeep(after time.Duration) time.Duration {
	if l.r.cfg.minHold > 0 {
		after = max(after, l.r.cfg.minHold-l.engine.now().AtLeast(l.replied))
	}
	return (after + time.Millisecond - 1).Truncate(time.Millisecond)
}

// handOnLater hands on what the release p has kept. If the outcome of p is unknown, the token may still keep the key; one
// that others may know is left to its TTL.
func (l *lease) handOnLater(p *releaseParams, unknown bool) {
	ctx := context.Background()
	keeper := *p.target
	keeper.token, keeper.ballot = keeperPrefix+p.token, nil
	l.engine.strategy.release(ctx, &releaseParams{target: &keeper}, ignored)
	l.mu.Lock()
	unknown = unknown && !l.shared
	l.mu.Unlock()
	if unknown {
		l.engine.strategy.release(ctx, &releaseParams{target: p.target}, ignored)
	}
}
