package redlatch

import (
	"cmp"
	"context"
	"time"
	"weak"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/tokens"
)

// newest is what a lease knows of its newest handle. Once the lease is no longer young, it has only
// a weak pointer, so that a dropped handle ends.
type newest struct {
	since    clock.Instant // when it was granted the lock
	fence    uint64
	hooks    *Hooks             // of the call that was granted it
	young    *Lock              // the handle of a young lease, which saves short locks the weak pointer
	weak     weak.Pointer[Lock] // the same from then on; nil once the caller has dropped it
	done     chan struct{}      // nil until the first call of Done
	contexts map[context.Context]context.CancelCauseFunc
}

// lockFor locks mu, unless a handle was passed on.
func (l *lease) lockFor(handle int) bool {
	l.mu.Lock()
	if l.core.Holds(handle) {
		return true
	}
	l.mu.Unlock()
	return false
}

// endLocked returns why a handle has ended. It does not judge the lease.
func (l *lease) endLocked(handle int) error {
	if !l.core.Holds(handle) {
		return ErrReleased
	}
	return l.err
}

// endHandleLocked ends what the handle has given out.
func (l *lease) endHandleLocked(err error) {
	if l.done != nil {
		close(l.done)
	}
	for _, cancel := range l.contexts {
		cancel(err)
	}
	l.done, l.contexts = nil, nil
}

// status judges the lease and returns why a handle ended.
func (l *lease) status(handle int) error {
	if !l.lockFor(handle) {
		return ErrReleased
	}
	l.core.Judge(clock.Now())
	return l.settle()
}

// end ends the lease with the err of the other side of a migration, unless it or the handle has
// ended.
func (l *lease) end(handle int, err error) {
	l.mu.Lock()
	l.core.End(handle, err)
	_ = l.settle()
}

// share returns the token for others, or "" if the handle was passed on.
func (l *lease) share(handle int) string {
	if !l.lockFor(handle) {
		return ""
	}
	l.core.Share()
	_ = l.settle()
	return l.token
}

// dropMinHold lets Unlock keep nobody out.
func (l *lease) dropMinHold() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.core.DropMinHold()
}

// refusal returns what this process knows of the lock that it holds.
func (l *lease) refusal() error {
	l.mu.Lock()
	left := l.core.Left(clock.Now())
	l.mu.Unlock()
	return &HeldError{Owner: tokens.Owner(l.token), TTL: left, ours: true, err: ErrNotAcquired}
}

// closed is the Done channel of handles that have ended.
var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

func (l *lease) doneChan(handle int) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.endLocked(handle) != nil {
		return closed
	}
	if l.done == nil {
		l.done = make(chan struct{})
	}
	return l.done
}

// A ctxLockKey is the key of the ctx value of the locks of one Locker, which is the newest ctxLock.
// Those of readers and writers are one for this.
type ctxLockKey struct{ *engine }

func (e *engine) ctxLockKey() ctxLockKey { return ctxLockKey{cmp.Or(e.pair, e)} }

// A ctxLock is a handle. It does not keep the Lock alive.
type ctxLock struct {
	lease  *lease
	handle int
	outer  *ctxLock // of the ctx around it; nil: none
}

// with returns a ctx that holds a handle.
func (l *lease) with(ctx context.Context, handle int) context.Context {
	h := &ctxLock{lease: l, handle: handle}
	h.outer, _ = ctx.Value(l.ctxLockKey()).(*ctxLock)
	return context.WithValue(ctx, l.ctxLockKey(), h)
}

// refuseOwnWait returns an error if ctx is that of a lock of this Locker, or of its pair, on the
// key of r: it ends with the lock, so the call would wait for itself. A second reader does if a
// writer comes in between.
func (e *engine) refuseOwnWait(ctx context.Context, r *request) error {
	for h, _ := ctx.Value(e.ctxLockKey()).(*ctxLock); h != nil && !e.shares; h = h.outer {
		if h.lease.key == r.redisKeys.key && h.lease.status(h.handle) == nil {
			return invalid("ctx is that of a lock on %q: Lock would wait for itself. Locks are not reentrant", r.key)
		}
	}
	return nil
}

// context returns a child of parent that ends with a handle.
func (l *lease) context(parent context.Context, handle int) context.Context {
	ctx, cancel := context.WithCancelCause(parent)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.endLocked(handle); err != nil {
		cancel(err)
		return ctx
	}
	if l.contexts == nil {
		l.contexts = make(map[context.Context]context.CancelCauseFunc)
	}
	l.contexts[ctx] = cancel
	// It runs when ctx ends, at the latest with the handle.
	context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.contexts, ctx)
		cancel(nil)
	})
	return ctx
}

func (l *lease) until() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.core.Until().Time()
}

// keptLocked reports whether the caller has the handle.
func (l *lease) keptLocked() bool { return l.young != nil || l.weak.Value() != nil }
