package redlatch

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	core "github.com/redlatch/redlatch/internal/lease"
)

// keptLocked reports whether the caller has the handle.
func (l *lease) keptLocked() bool { return l.young != nil || l.weak.Value() != nil }

// tick runs when the timer fires.
func (l *lease) tick() {
	now := l.engine.now()
	l.mu.Lock()
	kind := l.core.Tick(now, l.keptLocked())
	if kind != core.Nothing {
		l.running.Add(1)
	}
	if l.core.Judge(now) {
		l.timer.Reset(l.core.Next(now, l.keptLocked()))
	}
	_ = l.unlock()
	if kind != core.Nothing {
		_ = l.extended(context.Background(), kind, 0) // hooks report a failure, and tick tries again
	}
}

// extend makes the lease last for ttl from now, for Lock.Extend.
func (l *lease) extend(ctx context.Context, handle int, ttl time.Duration) error {
	if !l.lockFor(handle) {
		return ErrReleased
	}
	l.core.Settle()
	if l.core.Judge(l.engine.now()) {
		l.running.Add(1)
	}
	if err := l.unlock(); err != nil {
		return err
	}
	return l.extended(ctx, core.Call, ttl)
}

// An extension is one command that extends a lease.
type extension struct {
	core.Extension
	params
}

// extended sends an extension. Its caller has added it to l.running while the lease was held. If ctx ends first, the extension
// goes on.
func (l *lease) extended(ctx context.Context, kind core.Kind, ttl time.Duration) error {
	x := &extension{params: l.params}
	l.mu.Lock()
	x.Extension = l.core.Send(kind, ttl, l.engine.now())
	x.fence = l.fence
	l.mu.Unlock()
	x.ttl, x.ttlMS, x.timeout, x.restoreMS = x.TTL, x.TTL.Milliseconds(), x.Timeout, x.Restore.Milliseconds()
	got, left := l.engine.run(ctx, toExtend, &x.params, func(got reply) { _ = l.confirmed(x, got.err) })
	if left {
		return got.err
	}
	return l.confirmed(x, got.err)
}

// confirmed handles the outcome of an extension, and calls the hooks.
func (l *lease) confirmed(x *extension, err error) error {
	l.mu.Lock()
	now := l.engine.now()
	if l.core.Extended(&x.Extension, now, err, errors.Is(err, ErrLost), rand.Float64()) {
		l.timer.Reset(l.core.Next(now, l.keptLocked()))
	}
	l.running.Done() // before the hooks, which may call Unlock
	if ended := l.unlock(); ended != nil {
		return ended
	}
	trip := now.Since(x.Start)
	hook := l.hooks.Renewed
	if err != nil {
		hook = l.hooks.RenewFailed
	}
	l.fire(hook, Event{Elapsed: trip, Took: trip, Renewal: x.Kind != core.Call, Fence: x.fence, Err: err})
	return err
}
