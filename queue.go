package redlatch

import (
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/handoff"
	"github.com/redlatch/redlatch/internal/node"
)

// How waiters are served if a release hands the lock on:
//
//  - A waiter queues in Redis, by the same script that tries to acquire the lock. A release grants the lock to the
//    first in the queue, for its TTL, and publishes that to its process.
//  - No waiter depends on a message. The first waiter of a process for a key looks at Redis from time to time, for
//    all of them, and when the holder's lease may have ended. A look is the acquire again. It finds a free lock,
//    keeps the place in the queue, and detects lost messages and a lost queue.
//  - A process without a subscription gets no messages, so its waiters poll. After a while they queue too, and
//    their polls find the lock that was handed to them.

const (
	// confirmation is how long a waiter waits for the subscription before it queues without it.
	confirmation = time.Second

	// patience is how long a waiter polls before it queues if its process gets no messages: a lock that is handed to
	// it stays unused until the next poll.
	patience = time.Second
)

// errAgain says that the wait must start again: the subscription was refused, or works again.
var errAgain = errors.New("redlatch: the subscription has changed")

// queue waits for the lock in the queue of Redis. It also makes the first attempt, unless one was made before. A wait
// ends only with ctx or with an error that retrying cannot fix.
func (e *engine) queue(ctx context.Context, r *request) (*Lock, error) {
	s := e.waitlist.Subscription
	ready := s.Join()
	defer s.Leave()
	if r.attempts > 0 && !s.IsDegraded() {
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

// regranted reports whether err is that of a grant that was released again, so that a new attempt is needed.
func regranted(err error) bool {
	return (errors.Is(err, errSlow) || errors.Is(err, ErrNotReplicated)) && !errors.As(err, new(*gaveUp))
}

// waitFor waits until a is granted, or needs a new attempt.
func (e *engine) waitFor(ctx context.Context, r *request, a *attempt) (lock *Lock, err error) {
	polls := e.waitlist.Subscription.IsDegraded()
	w := e.waitlist.Enter(a.params.key, a.params.token, a.params.ttl, polls, e.now())
	sent, queued, notified := false, false, false
	defer func() {
		e.waitlist.Leave(w)
		switch {
		case lock != nil:
		case sent:
			a.leaveQueue(ctx, w.Entry)
		default:
			a.state.become(refused)
		}
	}()
	for {
		first := r.attempts == 0
		asked := e.now()
		place := w.Entry
		if polls && asked.Since(r.started) < patience {
			place = ""
		}
		lock, got, err := a.ask(ctx, place, queued)
		sent = sent || !errors.As(err, new(*node.NotDone))
		switch {
		case err == nil:
			if !polls && (!notified || !got.alreadyHeld) {
				e.waitlist.Found(w, got.alreadyHeld)
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
			e.waitlist.OnReply(w, asked, got.Refusal, err)
		case first:
			return nil, err
		default:
			e.reportTrouble(r, err)
			e.waitlist.OnError(w, err, r.cfg.pause(r.attempts, 0))
		}
		handed, ok := e.waitlist.Sleep(ctx, w, e.waitlist.Interval(w, r.cfg.pause, got.Refusal))
		notified = handed != nil
		r.last = e.waitlist.Last(w)
		switch {
		case handed != nil && r.cfg.replicas > 0: // the next attempt asks the replicas
		case handed != nil:
			if lock := a.takeOver(*handed); lock != nil {
				return lock, nil
			}
		case !ok:
			return nil, &gaveUp{node.CtxError(ctx), r.last}
		case polls != e.waitlist.Subscription.IsDegraded():
			return nil, errAgain
		}
	}
}

// takeOver starts the lease of a lock that was handed to a. It returns nil if the lease has already ended.
func (a *attempt) takeOver(h handoff.Handover) *Lock {
	start := a.engine.waitlist.Started(h, a.r.cfg.drift)
	length := clock.Validity(h.TTL, a.r.cfg.drift)
	if a.engine.now().Since(start) >= length {
		return nil
	}
	a.params.entry = h.Entry
	return (&lease{attempt: a, fence: h.Fence}).handOut(start, length)
}

// leaveQueue takes the entry of a waiter out of the queue, and gives back a lock that was handed to it. With a token
// that the caller chose, nothing else is released: the token may hold an earlier lock, or a new attempt with it may
// be under way. What is handed to it later is given back too. The caller waits for that while ctx lasts.
func (a *attempt) leaveQueue(ctx context.Context, place string) {
	a.state.become(refused)
	a.engine.waitlist.Depart(place, func() { a.leaveQueue(context.Background(), place) })
	left := make(chan struct{})
	go func() { // ends with the op timeout
		defer close(left)
		if err := a.undo(detached(ctx), place); err == nil || errors.Is(err, ErrLost) {
			a.engine.waitlist.Departed(place)
		}
	}()
	select {
	case <-left:
	case <-ctx.Done():
	}
}
