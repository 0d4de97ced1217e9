package redlatch

import (
	"context"
	"fmt"

	"github.com/redlatch/redlatch/internal/lease"
)

// ctxLockKey is the context key under which a ctx of Lock.Context has its handle, the newest ctxLock.
type ctxLockKey struct{}

// A ctxLock is a handle. It does not keep the Lock alive.
type ctxLock struct {
	lease.Handle
	outer *ctxLock // of the ctx around it; nil: none
}

// A holding is its parent with a handle.
type holding struct {
	context.Context //nolint:containedctx // the parent
	ctxLock
}

// with returns a ctx that holds a handle.
func with(parent context.Context, h lease.Handle) context.Context {
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
	return fmt.Sprintf("%v.WithLock(%q)", c.Context, attemptOf(c.Handle).id.key)
}
