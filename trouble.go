package redlatch

import (
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/rediserr"
	"github.com/redlatch/redlatch/internal/wire"
)

// troubleEvery is the least time between two calls of Hooks.Trouble for one cause.
const troubleEvery = time.Second

// A cause is reported once in troubleEvery.
type cause struct {
	node, key string
	kind      Cause
}

// due reports whether a cause is to be reported now.
func (e *engine) due(c cause) bool {
	now := clock.MonoNow()
	last, reported := e.troubles.LoadOrStore(c, now)
	due := !reported || now.Sub(last.(clock.Mono)) >= troubleEvery && e.troubles.CompareAndSwap(c, last, now)
	if due && c.key != "" { // there is no end of keys. The timer ends then
		time.AfterFunc(2*troubleEvery, func() { e.troubles.CompareAndDelete(c, now) })
	}
	return due
}

// reportFailure calls Hooks.Trouble for a call that failed with err, if Redis is the reason and it
// is due.
func (e *engine) reportFailure(ctx context.Context, r *request, err error) {
	switch {
	case err == nil, permanent(err), errors.Is(err, ErrNotAcquired), e.leftEarly(r, err):
	case errors.Is(err, ErrLost) && !errors.Is(err, errSlow): // Adopt found that the token does not hold the key
	default:
		if hook, event := e.troubleOf(r, r.attempts, err); hook != nil {
			hook(ctx, event)
		}
	}
}

// leftEarly reports whether ctx ended the call before Redis had time to answer. That says nothing
// of Redis.
func (e *engine) leftEarly(r *request, err error) bool {
	var wait *gaveUp
	if !errors.As(err, &wait) || r.attempts > 1 {
		return false
	}
	kind := kindOfTrouble(err)
	soon := clock.Now().Since(r.started) < r.cfg.timeout()/4
	return wait.last == nil || soon && (kind == CauseTimeout || kind == CauseQuorum)
}

// troubleOf returns the hook of r to call for a failed attempt, the newest of a number of them; nil
// if none is due.
func (e *engine) troubleOf(r *request, attempts int, err error) (hook func(context.Context, Event), event Event) {
	c := cause{kind: kindOfTrouble(err)}
	if r.cfg.hooks.Trouble == nil || !e.due(c) {
		return nil, event
	}
	event = r.event(e, attempts, asOutage(err))
	event.Cause = c.kind
	return r.cfg.hooks.Trouble, event
}

// failureHook returns a function that calls Hooks.Trouble for an error of the work under the lock, if
// it is due. It has the hooks of the handle, which may leave its seat to others before.
func failureHook(h lease.Handle) func(ctx context.Context, err error) {
	by, since := h.Granted()
	var hooks *Hooks
	if by != nil { // else the Lock is a zero one
		hooks = by.Hooks.(*Hooks)
	}
	a := attemptOf(h)
	id, e := &a.id, a.engine
	return func(ctx context.Context, err error) {
		if hooks == nil || hooks.Trouble == nil || !e.due(cause{kind: CauseFunc, key: id.lock}) {
			return
		}
		hooks.Trouble(ctx, Event{
			Strategy: e.name, Key: id.key, Owner: wire.Parse(id.token).Owner, Fence: fenceOf(h),
			Elapsed: clock.Now().Since(since), Cause: CauseFunc, Err: err,
		})
	}
}

func kindOfTrouble(err error) Cause {
	switch {
	case errors.Is(err, ErrNoQuorum):
		return CauseQuorum
	case errors.Is(err, ErrNotReplicated):
		return CauseReplicas
	case errors.Is(err, ErrLost):
		return CauseSlow
	}
	return Cause(rediserr.Cause(err))
}

// reportNode calls Hooks.Trouble for a failure of a node, if it is due. It does not wait for the
// hook.
func (e *engine) reportNode(name string, err error) {
	c := cause{node: name, kind: Cause(rediserr.Cause(err))}
	if hook := e.cfg.hooks.Trouble; hook != nil && e.due(c) {
		event := Event{Strategy: e.name, Node: name, Cause: c.kind, Err: asOutage(err)}
		go hook(context.Background(), event) // ends with the hook
	}
}

// reportDegraded calls Hooks.Degraded: Redis refuses SUBSCRIBE or PUBLISH with err. It does not
// wait for the hook.
func (e *engine) reportDegraded(err error) {
	if hook := e.cfg.hooks.Degraded; hook != nil {
		go hook(context.Background(), Event{Strategy: e.name, Err: err}) // ends with the hook
	}
}
