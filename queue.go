package redlatch

import (
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch/internal/node"
)

// patience is how long a waiter polls before it queues if its process gets no messages: a lock that is handed to it
// stays unused until the next poll.
const patience = time.Second

// hurry is how many times longer than a command the wait must be able to last, for the waiter to queue.
const hurry = 10

// hurried reports whether ctx ends too soon for the queue: by the time that the lock is handed over, the waiter is likely
// to have left. When commands get slow under load, waiters with short timeouts then poll, instead of queueing and leaving.
func (e *engine) hurried(ctx context.Context) bool {
	end, ok := ctx.Deadline()
	return ok && time.Until(end) < hurry*time.Duration(e.commandTime.Load())
}

// observe adds the duration of an attempt of a waiter to the moving average. An attempt that got no answer would have
// taken longer.
func (e *engine) observe(took time.Duration, err error) {
	before := e.commandTime.Load()
	if int64(took) > before || err == nil || errors.Is(err, ErrNotAcquired) {
		e.commandTime.Store(before + (int64(took)-before)/8)
	}
}

// errAgain says that the wait must start again: the subscription was refused, or works again.
var errAgain = errors.New("redlatch: the subscription has changed")

// queue waits for the lock in the queue of Redis, as internal/handoff describes. It also makes the first attempt, unless
// one was made before. A wait ends only with ctx or with an error that retrying cannot fix.
func (e *engine) queue(ctx context.Context, r *request) (*Lock, error) {
	s := e.waitlist.Subscription
	s.Join()
	defer s.Leave()
	if r.attempts > 0 {
		s.Await(ctx)
	}
	for {
		a, err := e.newAttempt(r, "")
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
	w := e.waitlist.Enter(a.params.key, a.params.token, a.params.ttl, e.now())
	sent, queued := false, false
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
		switch {
		case queued:
		case e.hurried(ctx):
			place = ""
			e.waitlist.Poll(w)
		case w.Degraded && asked.Since(r.started) < patience:
			place = ""
		}
		lock, got, err := a.ask(ctx, place, queued)
		e.observe(e.now().Since(asked), err)
		sent = sent || place != "" && !errors.As(err, new(*node.NotDone)) || !knownNotDone(err)
		switch {
		case err == nil:
			e.waitlist.Found(w, got.alreadyHeld)
			return lock, nil
		case endedBy(ctx, err):
			return nil, e.gaveUp(ctx, r, asked, err)
		case permanent(err), regranted(err):
			return nil, err
		case errors.Is(err, ErrNotAcquired):
			if first {
				r.waiting(e, err)
			}
			queued = place != ""
			e.waitlist.OnRefusal(w, asked, got.Refusal, err)
		case first:
			return nil, err
		default:
			e.reportTrouble(r, err)
			e.waitlist.OnError(w, err, r.cfg.pause(r.attempts, 0))
		}
		handed, ok := e.waitlist.Sleep(ctx, w, r.cfg.pause, got.Refusal)
		r.last = e.waitlist.Last(w)
		switch {
		case handed != nil && r.cfg.replicas > 0: // the next attempt asks the replicas
		case handed != nil:
			start := e.waitlist.Started(*handed, r.cfg.drift)
			l := &lease{attempt: a, fence: handed.Fence, entry: w.Entry}
			if lock, err := l.grant(start); err == nil {
				return lock, nil
			}
		case !ok:
			return nil, &gaveUp{node.CtxError(ctx), r.last}
		case e.waitlist.Outdated(w):
			return nil, errAgain
		}
	}
}

// leaveQueue takes the entry of a waiter out of the queue, and gives back a lock that was handed to it, also if that
// happens later. The caller waits for that while ctx lasts.
func (a *attempt) leaveQueue(ctx context.Context, place string) {
	a.state.become(refused)
	confirmed := a.engine.waitlist.Depart(place, func() { a.leaveQueue(context.Background(), place) })
	left := make(chan struct{})
	go func() { // ends with the op timeout
		defer close(left)
		if err := a.undo(detached(ctx), place); err == nil || errors.Is(err, ErrLost) {
			confirmed()
		}
	}()
	select {
	case <-left:
	case <-ctx.Done():
	}
}
