package lease

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
)

// An unending is a ctx of a lock whose parent never ends: it ends with the handle. The handle does not
// know of it, so there may be any number.
type unending struct {
	context.Context                 //nolint:containedctx // the end of the handle, which has no values
	values          context.Context //nolint:containedctx // the parent
}

func (c *unending) Value(key any) any {
	if end := c.Context.Value(key); end != nil { // that is how package context finds the cause
		return end
	}
	return c.values.Value(key)
}

func (c *unending) String() string { return fmt.Sprint(c.values) }

// A child is a ctx of a lock whose parent may end: it ends with the parent or with the handle.
type child struct {
	ctx    context.Context //nolint:containedctx // it stands for it
	cancel context.CancelCauseFunc
	stop   func() bool // keeps its end from being noticed
}

// A parent is that of a child. A program may use a ctx again, which has another channel then.
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

// Context returns a child of ctx that ends with the handle. with adds what it holds. For one ctx it is
// the same child each time, so that no number of calls makes the end of the handle slow.
func (h Handle) Context(ctx context.Context, with func(context.Context) context.Context) context.Context {
	l, s, p := h.lease, h.seat, parentOf(ctx)
	if p.done == nil {
		return &unending{h.Ended(), with(ctx)}
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
	c := new(child)
	c.ctx, c.cancel = context.WithCancelCause(with(ctx))
	l.mu.Lock()
	defer l.mu.Unlock()
	known, err := knownLocked(), h.errLocked()
	if known != nil || err != nil {
		c.cancel(err)
		return cmp.Or(known, c.ctx)
	}
	if s.contexts == nil {
		s.contexts = make(map[parent]*child)
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
