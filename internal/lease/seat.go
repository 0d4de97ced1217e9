package lease

import (
	"context"
	"weak"

	"github.com/redlatch/redlatch/internal/clock"
)

// A seat is the place of a handle among those that share a lease. Once the lease is no longer
// young, it has only a weak pointer to the Handle, so that a dropped one ends.
type seat struct {
	core     seatCore
	since    clock.Instant        // when its handle was granted the lock
	by       *Config              // of the call that was granted it
	strong   *Handle              // while the lease is young, since weak pointers cost short locks too much
	weak     weak.Pointer[Handle] // afterwards; nil once the caller has dropped the Handle
	ends     context.Context      //nolint:containedctx // ends with the handle; nil until it is asked for
	cancel   context.CancelCauseFunc
	contexts map[parent]*child
}

// A caller is the handle whose call noticed that something happened to a lease.
type caller struct {
	seat *seat
	ctx  context.Context //nolint:containedctx // of the call, for its hooks; nil: the call has none
}

// nobody is the caller if a timer or a message noticed it.
var nobody caller

// context returns the ctx for hooks.
func (c caller) context() context.Context {
	if c.ctx == nil {
		return context.Background()
	}
	return c.ctx
}

// take gives the seat to the handle h.
func (s *seat) take(h *Handle, by *Config, since clock.Instant) {
	s.since, s.by, s.strong = since, by, h
}

// end ends what the handle of the seat has given out.
func (s *seat) end(err error) {
	if s.cancel != nil {
		s.cancel(err)
	}
	for _, c := range s.contexts {
		c.stop()
		c.cancel(err)
	}
	s.ends, s.cancel, s.contexts, s.strong = nil, nil, nil, nil
}

// endsLocked returns a ctx without values that ends with the handle, which has not ended.
func (s *seat) endsLocked() context.Context {
	if s.ends == nil {
		s.ends, s.cancel = context.WithCancelCause(context.Background())
	}
	return s.ends
}

// inUse reports whether the caller has the handle.
func (s *seat) inUse() bool { return s.strong != nil || s.weak.Value() != nil }

// weaken keeps only a weak pointer to the Handle.
func (s *seat) weaken() {
	if s.strong != nil {
		s.strong, s.weak = nil, weak.Make(s.strong)
	}
}
