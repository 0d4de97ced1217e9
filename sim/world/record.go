package world

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/sim/judge"
)

// A record has what was seen.
type record struct {
	start time.Time
	pulse *atomic.Int64 // grows with each event
	log   io.Writer     // nil: there is none

	mu     sync.Mutex // guards the fields below
	events []judge.Event
	calls  int
	holds  int
}

func (r *record) add(e judge.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.addLocked(e)
}

func (r *record) addLocked(e judge.Event) {
	e.At = time.Since(r.start)
	r.pulse.Add(1)
	r.events = append(r.events, e)
	if r.log != nil && e.Kind != judge.Seen && e.Kind != judge.Queued {
		fmt.Fprintln(r.log, e)
	}
}

func (r *record) all() []judge.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.events
}

// called notes a call, and returns its number.
func (r *record) called(a judge.Ask, ends time.Time) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	e := judge.Event{Kind: judge.Called, Call: r.calls, Ask: &a, Ends: judge.Never}
	if !ends.IsZero() {
		e.Ends = ends.Sub(r.start)
	}
	r.addLocked(e)
	return r.calls
}

func (r *record) returned(call int, err error) {
	r.add(judge.Event{Kind: judge.Returned, Call: call, Err: err})
}

// granted notes a lock, and returns its number.
func (r *record) granted(e judge.Event) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holds++
	e.Kind, e.Hold = judge.Granted, r.holds
	r.addLocked(e)
	return r.holds
}
