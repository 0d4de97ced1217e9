package redlatchotel

import (
	"sync"

	"go.opentelemetry.io/otel/trace"

	"github.com/redlatch/redlatch"
)

// A trouble is one that a span has an event of.
type trouble struct {
	span  trace.SpanID
	cause redlatch.Cause
	node  string
}

// told has the troubles of the newest spans. A call that waits through an outage meets with the same
// one each second, and a span has room for few events.
type told struct {
	mu  sync.Mutex // guards the field below
	all map[trouble]struct{}
}

// mostTold bounds what told remembers. If more spans than that are in trouble, some get an event again.
const mostTold = 10_000

// first reports whether the span gets its first event of a trouble, and notes that.
func (t *told) first(one trouble) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.all[one]; known {
		return false
	}
	if len(t.all) >= mostTold {
		clear(t.all)
	}
	t.all[one] = struct{}{}
	return true
}
