package redlatch

import (
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch/internal/node"
)

// How waiters are served where a release hands the lock on:
//
//   - A waiter queues in Redis, by the same script that tries to take the lock. A release gives
//     the lock to the first in the queue, for its TTL, and publishes that to its process.
//   - No waiter depends on a message. The first of a process's waiters for a key looks at Redis
//     from time to time, for all of them, and when the holder's lease can have ended. Its look is the
//     acquire again: it finds a free lock, keeps its place, tells whose message was lost, and
//     whether the queue was.
//   - A process that cannot be told, since it has no subscription, polls. After a while its waiters
//     queue too, and are handed locks that their looks find.

const (
	// confirmation is how long a waiter waits for the subscription before it queues without.
	confirmation = time.Second

	// patience is how long a waiter polls before it queues where its process cannot be told of its turn: a
	// lock that is handed to it lies idle until it looks.
	patience = time.Second
)

// errAgain says that a waiter has to start anew: the way in which its process is told of its turn has changed.
var errAgain = errors.New("redlatch: the subscription has changed")

// queue waits for the lock in Redis's queue. It makes the first attempt itself, where none was
// made. Only ctx ends the wait, or an error that waiting cannot fix.
func (e *engine) queue(ctx context.Context, r *request) (*Lock, error) {
	s := e.waitlist.subscription
	ready := s.join()
	defer s.leave()
	if r.attempts > 0 && !s.isDegraded() {
		confirmed, cancel := context.WithTimeout(ctx, confirmation)
		select {
		case <-ready:
		case <-confirmed.Done():
		}
		cancel()
	}
	for {
		a, err := e.newAttempt(r)
		if err != nil {
			return nil, err
		}
		lock, err := e.waitFor(ctx, r, a)
		switch {
		case errors.Is(err, errAgain):
			continue
		case r.attempts == 1 || !regranted(err):
			return lock, err
		}
		r.last = err
		e.reportTrouble(r, err)
		if !sleep(ctx, r.cfg.pause(r.attempts, 0)) {
			return nil, &gaveUp{node.CtxError(ctx), r.last}
		}
	}
}

// regranted reports whether a grant was none, for err, and was given back, so that a new attempt has to be
// made.
func regranted(err error) bool {
	return (errors.Is(err, errSlow) || errors.Is(err, ErrNotReplicated)) && !errors.As(err, new(*gaveUp))
}

// waitFor waits until a is granted, or until its grant was none.
func (e *engine) waitFor(ctx context.Context, r *request, a *attempt) (lock *Lock, err error) {
	polls := e.waitlist.subscription.isDegraded()
	w := e.waitlist.enter(&a.params, polls, e.now())
	sent, queued, told := false, false, false
	defer func() {
		e.waitlist.leave(w)
		switch {
		case lock != nil:
		case sent:
			a.leaveQueue(ctx, w.entry)
		default:
			a.state.become(refused)
		}
	}()
	for {
		first := r.attempts == 0
		asked := e.now()
		place := w.entry
		if polls && asked.since(r.started) < patience {
			place = ""
		}
		lock, got, err := a.ask(ctx, place, queued)
		sent = sent || !errors.As(err, new(*node.NotDone))
		switch {
		case err == nil:
			if got.alreadyHeld && !polls && !told {
				e.waitlist.missed(w)
			}
			return lock, nil
		case endedBy(ctx, err):
			return nil, e.gaveUp(ctx, r, asked, err)
		case permanent(err), regranted(err):
			return nil, err
		case errors.Is(err, ErrNotAcquired):
			if first {
				r.fire(e, r.cfg.hooks.Waiting)
			}
			queued = place != ""
			e.waitlist.onReply(w, asked, got, err)
		case first:
			return nil, err
		default:
			e.reportTrouble(r, err)
			e.waitlist.onError(w, err, r.cfg.pause(r.attempts, 0))
		}
		handed, ok := e.waitlist.sleep(ctx, w, e.waitlist.interval(w, r.cfg, got))
		told = handed != nil
		r.last = e.waitlist.last(w)
		switch {
		case handed != nil && r.cfg.replicas > 0: // to be confirmed by the next attempt
		case handed != nil:
			if lock := a.takeOver(*handed); lock != nil {
				return lock, nil
			}
		case !ok:
			return nil, &gaveUp{node.CtxError(ctx), r.last}
		case polls != e.waitlist.subscription.isDegraded():
			return nil, errAgain
		}
	}
}

// takeOver starts the lease of a lock that was handed to a, unless it has ended already.
func (a *attempt) takeOver(d delivery) *Lock {
	start := a.engine.waitlist.started(d, a.r.cfg.drift)
	length := validity(d.ttl, a.r.cfg.drift)
	if a.engine.now().since(start) >= length {
		return nil
	}
	a.params.entry = d.entry
	return (&lease{attempt: a, fence: d.fence}).handOut(start, length)
}

// leaveQueue gives up the place of a waiter, and whatever was handed to it meanwhile. A token that
// the caller chose may hold a lock of before, or one that it asks for again already: of that, only what was
// handed to this place is given up. Where Redis cannot be told, the waitlist remembers the place. The caller
// waits for that while its ctx lasts.
func (a *attempt) leaveQueue(ctx context.Context, place string) {
	a.state.become(refused)
	a.engine.waitlist.departed.add(a, place)
	left := make(chan struct{})
	go func() { // ends with the op timeout
		defer close(left)
		if err := a.undo(detached(ctx), place); err == nil || errors.Is(err, ErrLost) {
			a.engine.waitlist.departed.take(place)
		}
	}()
	select {
	case <-left:
	case <-ctx.Done():
	}
}
