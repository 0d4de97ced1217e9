package redlatch

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/redlatch/redlatch/internal/node"
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
// made. Only ctx ends the wait, or an error that waiting cannot fix.
func (e *engine) queue(ctx context.Context, r *request) (*Lock, error) {
	ready := e.waitlist.subscription.join()
	defer e.waitlist.subscription.leave()
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
		a, err := e.newAttempt(r)
		if err != nil {
			return nil, err
		}
		lock, err := e.waitFor(ctx, r, a, trouble)
		if r.attempts == 1 || !regranted(err) {
			return lock, err
		}
		trouble = err
		if !sleep(ctx, r.cfg.pause(r.attempts, 0)) {
			return nil, &gaveUp{node.CtxError(ctx), trouble}
		}
	}
}

// regranted reports whether a grant was none, for err, and was given back, so that a new attempt has to be
// made.
func regranted(err error) bool {
	return (errors.Is(err, errSlow) || errors.Is(err, ErrNotReplicated)) && !errors.As(err, new(*gaveUp))
}

// waitFor waits until a is granted, or until its grant was none. trouble is why the last attempt failed,
// where not for another owner.
func (e *engine) waitFor(ctx context.Context, r *request, a *attempt, trouble error) (lock *Lock, err error) {
	p := &a.params
	w := e.waitlist.enter(p.key, p.token, e.now())
	place := entry(p.ttl, e.waitlist.subscription.channel, e.waitlist.waiters.Add(1), p.token)
	sent := false
	defer func() {
		e.waitlist.leave(w)
		switch {
		case lock != nil:
		case sent:
			a.leaveQueue(ctx, place)
		default:
			a.state.become(refused)
		}
	}()
	for {
		first := r.attempts == 0
		asked := e.now()
		lock, got, err := a.ask(ctx, place)
		sent = sent || !errors.As(err, new(*node.NotDone))
		switch {
		case err == nil:
			return lock, nil
		case first && errors.As(err, new(*node.CutShort)):
			return nil, err
		case endedBy(ctx, err):
			return nil, &gaveUp{node.CtxError(ctx), trouble}
		case permanent(err), regranted(err):
			return nil, err
		case errors.Is(err, ErrNotAcquired):
			trouble = nil
			if first {
				r.fire(e, r.cfg.hooks.Waiting)
			}
			e.waitlist.onReply(w, asked, got)
		case first:
			return nil, err
		default:
			trouble = err
			e.waitlist.onError(w, r.cfg.pause(r.attempts, 0))
		}
		every := lookEvery + rand.N(lookEvery/4)
		if e.waitlist.subscription.isDegraded() {
			every = r.cfg.pause(r.attempts, got.left)
		}
		handed, ok := e.waitlist.sleep(ctx, w, every)
		switch {
		case handed != nil && r.cfg.replicas > 0: // to be claimed, and confirmed, by the next attempt
		case handed != nil:
			if p.callerToken { // it may be in another waiter's place
				p.entry = place
			}
			if lock := a.takeOver(*handed); lock != nil {
				return lock, nil
			}
		case !ok:
			return nil, &gaveUp{node.CtxError(ctx), trouble}
		}
	}
}

// takeOver starts the lease of a lock that was handed to a, unless it has ended already. The first
// renewal, which is due soon, claims the full TTL.
func (a *attempt) takeOver(d delivery) *Lock {
	start := a.engine.waitlist.started(d, a.r.cfg.drift)
	length := validity(d.claim, a.r.cfg.drift)
	if a.engine.now().since(start) >= length {
		return nil
	}
	return (&lease{attempt: a, fence: d.fence, unclaimed: true}).handOut(start, length)
}

// leaveQueue gives up the place of a waiter, and whatever was handed to it meanwhile. A token that
// the caller chose may hold a lock of before, or one that it asks for again already: it gives up no
// more than the place, and what was handed to it ends with its claim time.
func (a *attempt) leaveQueue(ctx context.Context, place string) {
	a.state.become(refused)
	t := a.params.target
	if t.callerToken {
		t.token = ""
	}
	a.undo(ctx, &t, place)
}
