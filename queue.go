package redlatch

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// How waiters are served where a release hands the lock on:
//
//   - A waiter queues in Redis, by the same script that tries to take the lock. A release gives
//     the lock to the first in the queue and publishes that to its process. Whoever hears its
//     token owns the lock, for a short time at first; unless it is released soon, it claims the full TTL.
//   - No waiter depends on a message. The first of a process's waiters for a key looks at Redis
//     about once a second, for all of them, and when the holder's lease can have ended, if it is
//     the first of all. Its look is the acquire again: it finds a free lock, keeps its place,
//     tells whose message was lost, and whether the queue was.

const (
	// lookEvery is how often a process looks at a key that it waits for, and up to a quarter more.
	lookEvery = time.Second

	// confirmation is how long a waiter waits for the subscription before it queues without.
	confirmation = time.Second
)

// queue waits for the lock in Redis's queue. It makes the first attempt itself, where none was
// made. Only ctx ends the wait, or what waiting cannot mend.
func (e *engine) queue(ctx context.Context, r *request) (*Lock, error) {
	ready := e.lobby.subscription.join()
	defer e.lobby.subscription.leave()
	if r.attempts > 0 {
		confirmed, cancel := context.WithTimeout(ctx, confirmation)
		select {
		case <-ready:
		case <-confirmed.Done():
		}
		cancel()
	}
	var trouble error // why the last attempt failed, where not for another owner
	for {
		l, err := e.lease(r, r.cfg.token)
		if err != nil {
			return nil, err
		}
		lock, err := e.waitFor(ctx, r, l, trouble)
		if r.attempts == 1 || !vain(err) {
			return lock, err
		}
		trouble = err
		if !sleep(ctx, r.cfg.pause(r.attempts, 0)) {
			return nil, &gaveUp{ctxError(ctx), trouble}
		}
	}
}

// vain reports whether a grant was none, for err, and was given back: another token has to be tried.
func vain(err error) bool {
	return (errors.Is(err, errSlow) || errors.Is(err, ErrNotReplicated)) && !errors.As(err, new(*gaveUp))
}

// waitFor waits until l is granted, or until that was in vain. trouble is why the last attempt failed,
// where not for another owner.
func (e *engine) waitFor(ctx context.Context, r *request, l *lease, trouble error) (got *Lock, err error) {
	w := e.lobby.enter(l.claim.key, l.claim.token, e.now())
	place := entry(l.claim.ttl, e.lobby.subscription.channel, e.lobby.waiters.Add(1), l.claim.token)
	sent := false
	defer func() {
		e.lobby.leave(w)
		switch {
		case got != nil:
		case sent:
			l.leaveQueue(ctx, place)
		default:
			l.life.state.Store(lifeRefused)
		}
	}()
	for {
		first := r.attempts == 0
		asked := e.now()
		lock, g, err := l.attempt(ctx, r, place)
		sent = sent || !errors.As(err, new(*undone))
		switch {
		case err == nil:
			return lock, nil
		case first && errors.As(err, new(*cutShort)):
			return nil, err
		case r.end != nil:
			return nil, &gaveUp{ctxError(ctx), trouble}
		case hopeless(err), vain(err):
			return nil, err
		case errors.Is(err, ErrNotAcquired):
			trouble = nil
			if first {
				r.fire(e, r.cfg.hooks.Waiting)
			}
			e.lobby.heard(w, asked, g)
		case first:
			return nil, err
		default:
			trouble = err
			e.lobby.troubled(w, r.cfg.pause(r.attempts, 0))
		}
		every := lookEvery + rand.N(lookEvery/4)
		if e.lobby.subscription.useless() {
			every = r.cfg.pause(r.attempts, g.left)
		}
		handed, ok := e.lobby.sleep(ctx, w, every)
		switch {
		case handed != nil && r.cfg.replicas > 0: // to be claimed, and confirmed, by the next attempt
		case handed != nil:
			if l.claim.chosen { // perhaps in another waiter's place
				l.claim.entry = place
			}
			if lock := l.takeOver(r, *handed); lock != nil {
				return lock, nil
			}
		case !ok:
			return nil, &gaveUp{ctxError(ctx), trouble}
		}
	}
}

// takeOver starts the lease of a lock that was handed to l, unless it has ended already. The
// first renewal, which is due soon, claims the full TTL.
func (l *lease) takeOver(r *request, d delivery) *Lock {
	start := l.engine.lobby.started(d, r.cfg.drift)
	length := validity(d.claim, r.cfg.drift)
	if l.engine.now().since(start) >= length {
		return nil
	}
	if l.claim.fenced {
		l.fence = d.fence
	}
	l.unclaimed = true
	return l.handOut(r, start, length, 0)
}

// leaveQueue gives up the place of a waiter, and whatever was handed to it meanwhile. A token that
// the caller chose may hold a lock of before, or one that it asks for again already: it gives up no
// more than the place, and what was handed to it ends with its claim time.
func (l *lease) leaveQueue(ctx context.Context, place string) {
	l.life.state.Store(lifeRefused)
	c := l.claim
	c.entry = place
	if c.chosen {
		c.token = ""
	}
	l.engine.undo(ctx, &c)
}
