package redlatch

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"sync"
	"time"
)

// A loan lends the ctx of a call to what the call begins, as commands, which go on when ctx has ended.
// Programs may use a ctx for something else when its call has returned, as package gin does. So over
// takes it back: nothing calls a method of ctx afterwards, and the loan has ended and has no values.
type loan struct {
	mu  sync.Mutex      // guards ctx, and is held while a method of it runs
	ctx context.Context //nolint:containedctx // nil once it was taken back
}

// lend returns what stands for ctx.
func (b *loan) lend(ctx context.Context) context.Context {
	if ctx == context.Background() {
		return ctx
	}
	b.ctx = ctx
	return b
}

// over takes ctx back. The call that has lent it is about to return.
func (b *loan) over() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ctx = nil
}

// Deadline, Done, Err and Value are those of ctx.
func (b *loan) Deadline() (end time.Time, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx == nil {
		return end, false
	}
	return b.ctx.Deadline()
}

func (b *loan) Done() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx == nil {
		return wasLent.Done()
	}
	return b.ctx.Done()
}

func (b *loan) Err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx == nil {
		return wasLent.Err()
	}
	return b.ctx.Err()
}

func (b *loan) Value(key any) any {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx == nil {
		return nil
	}
	return b.ctx.Value(key)
}

// AfterFunc calls f in a goroutine when ctx has ended, unless stop is called before.
func (b *loan) AfterFunc(f func()) (stop func() bool) { return afterFunc(b.Done(), f) }

// String keeps package fmt from looking into what changes.
func (b *loan) String() string { return "ctx of a call" }

// endedBy returns a ctx that has ended.
func endedBy(err error) context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(err)
	return ctx
}

// wasLent stands for a ctx that was taken back.
var wasLent = endedBy(nil)

// afterFunc is what package context asks a parent for which is not one of its own. Otherwise it would
// ask the parent for its channel in a goroutine, and so perhaps when the call has returned. Stop waits
// for f, which asks the parent for its error.
func afterFunc(done <-chan struct{}, f func()) (stop func() bool) {
	var mu sync.Mutex // guards over, and is held while f runs
	over, stopped := false, make(chan struct{})
	end := func() bool {
		was := over
		over = true
		return !was
	}
	go func() { // ends with the parent, or with stop
		select {
		case <-done:
			mu.Lock()
			defer mu.Unlock()
			if end() {
				f()
			}
		case <-stopped:
		}
	}()
	return func() bool {
		mu.Lock()
		defer mu.Unlock()
		if !end() {
			return false
		}
		close(stopped)
		return true
	}
}

// ctxLockKey is the context key under which a ctx of Lock.Context has its handle, the newest ctxLock.
type ctxLockKey struct{}

// A ctxLock is a handle. It does not keep the Lock alive.
type ctxLock struct {
	handle
	outer *ctxLock // of the ctx around it; nil: none
}

// A holding is its parent with a handle.
type holding struct {
	context.Context //nolint:containedctx // the parent
	ctxLock
}

// with returns a ctx that holds the handle.
func (h handle) with(parent context.Context) context.Context {
	outer, _ := parent.Value(ctxLockKey{}).(*ctxLock)
	return &holding{parent, ctxLock{h, outer}}
}

func (c *holding) Value(key any) any {
	if key == any(ctxLockKey{}) {
		return &c.ctxLock
	}
	return c.Context.Value(key)
}

// AfterFunc is like that of a loan.
func (c *holding) AfterFunc(f func()) (stop func() bool) { return afterFunc(c.Done(), f) }

func (c *holding) String() string {
	return fmt.Sprintf("%v.WithLock(%q)", c.Context, c.lease.attempt.id.key)
}

// An unending is a ctx of a lock whose parent never ends: it ends with the handle. The handle does not
// know of it, so there may be any number.
type unending struct {
	context.Context                 // the end of the handle, which has no values
	values          context.Context //nolint:containedctx // the parent
}

func (c *unending) Value(key any) any {
	if end := c.Context.Value(key); end != nil { // that is how package context finds the cause
		return end
	}
	return c.values.Value(key)
}

func (c *unending) String() string { return fmt.Sprint(c.values) }

// A lockCtx is a ctx of a lock whose parent may end: it ends with the parent or with the handle.
type lockCtx struct {
	ctx    context.Context //nolint:containedctx // it stands for it
	cancel context.CancelCauseFunc
	stop   func() bool // keeps its end from being noticed
}

// A parent is that of a lockCtx. A program may use a ctx again, which has another channel then.
type parent struct {
	ctx  any
	done <-chan struct{}
}

func parentOf(ctx context.Context) parent {
	if reflect.ValueOf(ctx).Comparable() {
		return parent{ctx, ctx.Done()}
	}
	return parent{new(byte), ctx.Done()} // it is never found
}

// context returns a child of ctx that ends with the handle. with adds what it holds. For one ctx it is
// the same child each time, so that no number of calls makes the end of the handle slow.
func (h handle) context(ctx context.Context, with func(context.Context) context.Context) context.Context {
	l, s, p := h.lease, h.seat, parentOf(ctx)
	if p.done == nil {
		return &unending{h.ended(), with(ctx)}
	}
	knownLocked := func() context.Context {
		if c := s.contexts[p]; c != nil && h.errLocked() == nil && c.ctx.Err() == nil {
			return c.ctx
		}
		return nil
	}
	l.mu.Lock()
	known := knownLocked()
	l.mu.Unlock()
	if known != nil {
		return known
	}
	c := new(lockCtx)
	c.ctx, c.cancel = context.WithCancelCause(with(ctx))
	l.mu.Lock()
	defer l.mu.Unlock()
	known, err := knownLocked(), h.errLocked()
	if known != nil || err != nil {
		c.cancel(err)
		return cmp.Or(known, c.ctx)
	}
	if s.contexts == nil {
		s.contexts = make(map[parent]*lockCtx)
	}
	s.contexts[p] = c
	// It runs when the parent ends, unless the handle does before.
	c.stop = context.AfterFunc(c.ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if s.contexts[p] == c {
			delete(s.contexts, p)
		}
		c.cancel(nil)
	})
	return c.ctx
}
