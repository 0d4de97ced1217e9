package redlatch

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"
)

// Hooks are callbacks that report events of locks, like [net/http/httptrace.ClientTrace] for requests.
// Any of them may be nil, and they may run concurrently. A hook is called in the goroutine that noticed
// the event, or in its own goroutine. It must return quickly, and must not panic: in a goroutine of
// this package, such as for a renewal, a panic ends the process. It may run after Done was closed or
// Unlock has returned, and after Acquired of the next lock.
//
// ctx is the ctx of the call that the event is about, or a child of it. Use it for its values: it
// may have ended. It has no values if the event is about no call, such as a renewal, or about a
// call without a ctx, such as [Lock.Err]. It also has none if the call has returned. Do not keep
// it.
type Hooks struct {
	// Acquired reports that a lock was granted or adopted, or was passed on to this call.
	Acquired func(context.Context, Event)
	// Waiting reports that a Lock call starts to wait, because its first attempt was refused, or the
	// Locker knows that the key is held. Err is the refusal. It has a [HeldError] if the owner is
	// known.
	Waiting func(context.Context, Event)
	// Moved reports that a Lock call still waits, and that the key has another holder than when Waiting
	// or Moved was last called. So the followers of [Lead] learn who leads. Err is the newest refusal.
	// Moved does not report a holder that holds the key only between two requests. It is never called
	// with [NewLegacySetNX], or for a key that can have several holders.
	Moved func(context.Context, Event)
	// Renewed reports that a renewal or Extend succeeded. If readers share a permit, only the hooks
	// of one of them report its renewals.
	Renewed func(context.Context, Event)
	// RenewFailed reports that a renewal or Extend failed with Err while the lock is still held. A
	// renewal is retried.
	RenewFailed func(context.Context, Event)
	// Lost reports that the lock ended with Err before it was released. This includes a fixed lease
	// that the program let expire on purpose.
	Lost func(context.Context, Event)
	// Released reports that Unlock ended the lock. Err is nil if Redis confirmed it, or if the lock
	// was passed on within the process.
	Released func(context.Context, Event)
	// Degraded reports that the waiters of the Locker poll because Redis refuses SUBSCRIBE or PUBLISH
	// with Err, although other commands work. Degraded does not report outages. Key is empty, and only
	// the Locker's own hooks run. Degraded reports a new refusal after a recovery again, and a refusal
	// of PUBLISH at most once a minute.
	Degraded func(context.Context, Event)
	// Trouble reports an attempt of [Locker.Lock], [Locker.TryLock] or [Locker.Adopt] that failed with
	// Err because of Redis, whether it is retried or Err is returned. An error that retrying cannot
	// fix, see [Locker.Lock], is only returned. Trouble also reports a failed node of [NewRedlock],
	// even if the operation succeeds: then Key is empty, and only the Locker's own hooks run. It is
	// called at most once a second for each Cause and Node of a Locker. It also reports errors that fn
	// of [Lead] returned, with the Cause [CauseFunc], at most once a second for each key.
	Trouble func(context.Context, Event)
}

// Event describes an event of a lock. Fence and Elapsed are zero if they are not known yet. No
// event has the token.
type Event struct {
	Strategy Strategy
	Key      string // as the caller named it
	Owner    string // see [WithOwner]
	Fence    uint64
	// Lead is set in events of a call of [Lead], which may wait, and then hold, for as long as its
	// process runs.
	Lead bool
	// Attempts counts the acquisition attempts since the call, by its line, in [Hooks.Acquired],
	// [Hooks.Waiting], [Hooks.Moved] and [Hooks.Trouble]. It is 0 for [Locker.Adopt], except of a
	// reader, which makes an attempt.
	Attempts int
	// Elapsed is the time since the call, up to [Hooks.Acquired]. Afterwards it is the time since the
	// grant.
	Elapsed time.Duration
	// Took is the round trip in [Hooks.Renewed], [Hooks.RenewFailed] and [Hooks.Released], and in
	// [Hooks.Lost] if Unlock noticed it; 0: none.
	Took time.Duration
	// Renewal is set in [Hooks.Renewed] and [Hooks.RenewFailed]: it was a renewal, not a call of
	// [Lock.Extend].
	Renewal bool
	again   bool // the renewal, or Extend, before it failed, too
	// Err is set in [Hooks.Waiting], [Hooks.Moved], [Hooks.Lost], [Hooks.RenewFailed],
	// [Hooks.Degraded] and [Hooks.Trouble], and in [Hooks.Released] if Redis did not confirm.
	Err error
	// Node is set in [Hooks.Trouble]: the address of a node, or its number. It is empty if the error is
	// not about one node.
	Node string
	// Cause is set in [Hooks.Trouble].
	Cause Cause
}

// all returns pointers to the hooks.
func (h *Hooks) all() []*func(context.Context, Event) {
	return []*func(context.Context, Event){
		&h.Acquired, &h.Waiting, &h.Moved, &h.Renewed, &h.RenewFailed, &h.Lost, &h.Released, &h.Degraded,
		&h.Trouble,
	}
}

// markLead has all hooks report events of a call of Lead.
func (h *Hooks) markLead() {
	for _, hook := range h.all() {
		if report := *hook; report != nil {
			*hook = func(ctx context.Context, e Event) { e.Lead = true; report(ctx, e) }
		}
	}
}

// add has all hooks call those of next, too, behind what they call now.
func (h *Hooks) add(next Hooks) {
	hooks := h.all()
	for i, added := range next.all() {
		first, second := *hooks[i], *added
		switch {
		case second == nil:
		case first == nil:
			*hooks[i] = second
		default:
			*hooks[i] = func(ctx context.Context, e Event) { first(ctx, e); second(ctx, e) }
		}
	}
}

var zeros = []slog.Value{
	slog.StringValue(""), slog.Uint64Value(0), slog.IntValue(0), slog.DurationValue(0), slog.BoolValue(false),
}

// SlogHooks returns [Hooks] that write to logger, or to [slog.Default] if it is nil. [Hooks.Lost] is
// logged at Error; [Hooks.RenewFailed], [Hooks.Degraded], [Hooks.Trouble] and a release that Redis did
// not confirm at Warn; all others at Debug. SlogHooks leaves out attributes without a value. Logs
// contain the owner and no token, because tokens are secret.
//
// Of the failed renewals of a lock, SlogHooks logs only the first, until one has succeeded. For all
// locks it writes at most one such line a second. The attribute others counts the other locks whose
// renewals began to fail since the line before.
func SlogHooks(logger *slog.Logger) Hooks {
	logger = cmp.Or(logger, slog.Default())
	at := func(level slog.Level, message string) func(context.Context, Event) {
		return func(ctx context.Context, e Event) {
			logger.LogAttrs(ctx, level, message, e.attrs()...)
		}
	}
	renewals := failedRenewals{log: func(ctx context.Context, e Event, others int) {
		attrs := e.attrs()
		if others > 0 {
			attrs = append(attrs, slog.Int("others", others))
		}
		logger.LogAttrs(ctx, slog.LevelWarn, "lock renewal failed", attrs...)
	}}
	trouble, failed := at(slog.LevelWarn, "lock service in trouble"), at(slog.LevelWarn, "leader failed")
	unconfirmed, released := at(slog.LevelWarn, "lock release not confirmed"), at(slog.LevelDebug, "lock released")
	return Hooks{
		Acquired:    at(slog.LevelDebug, "lock acquired"),
		Waiting:     at(slog.LevelDebug, "waiting for lock"),
		Moved:       at(slog.LevelDebug, "lock has another holder"),
		Renewed:     at(slog.LevelDebug, "lock renewed"),
		RenewFailed: renewals.add,
		Lost:        at(slog.LevelError, "lock lost"),
		Released: func(ctx context.Context, e Event) {
			if e.Err != nil {
				unconfirmed(ctx, e)
			} else {
				released(ctx, e)
			}
		},
		Degraded: at(slog.LevelWarn, "lock waiting degraded"),
		Trouble: func(ctx context.Context, e Event) {
			if e.Cause == CauseFunc {
				failed(ctx, e)
			} else {
				trouble(ctx, e)
			}
		},
	}
}

// attrs returns what a log has of the event.
func (e *Event) attrs() []slog.Attr {
	var holder, text string
	var held *HeldError
	switch {
	case e.Cause == CauseFunc: // whatever it matches
		text = e.Err.Error()
	case errors.As(e.Err, &held):
		holder = held.Owner
	case e.Err != nil && !errors.Is(e.Err, ErrNotAcquired):
		text = e.Err.Error()
	}
	return slices.DeleteFunc([]slog.Attr{
		slog.String("strategy", string(e.Strategy)), slog.String("key", e.Key), slog.String("owner", e.Owner),
		slog.Bool("lead", e.Lead), slog.Uint64("fence", e.Fence),
		slog.Int("attempts", e.Attempts), slog.Duration("elapsed", e.Elapsed),
		slog.String("holder", holder), slog.String("node", e.Node), slog.String("cause", string(e.Cause)),
		slog.String("error", text),
	}, func(a slog.Attr) bool { return slices.ContainsFunc(zeros, a.Value.Equal) })
}

// guarded calls a hook. If the hook panics, undo runs, and the panic continues.
func guarded(hook, undo func()) {
	returned := false
	defer func() {
		if !returned {
			undo()
		}
	}()
	hook()
	returned = true
}
