package redlatch

import (
	"errors"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/node"
)

// troubleEvery is the least time between two calls of Hooks.Trouble for one cause.
const troubleEvery = time.Second

// troubles limits the calls of Hooks.Trouble: one in troubleEvery for each cause and node.
type troubles struct {
	mu       sync.Mutex // guards the fields below
	reported map[cause]time.Time
}

type cause struct{ node, kind string }

// due reports whether a cause is to be reported now.
func (t *troubles) due(c cause) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if last, ok := t.reported[c]; ok && now.Sub(last) < troubleEvery {
		return false
	}
	if t.reported == nil {
		t.reported = make(map[cause]time.Time)
	}
	t.reported[c] = now
	return true
}

// reportFailure calls Hooks.Trouble for a call that failed with err, if Redis is the reason and it is due.
func (e *engine) reportFailure(r *request, err error) {
	switch {
	case err == nil, permanent(err), errors.Is(err, ErrNotAcquired), e.leftEarly(r, err):
	case errors.Is(err, ErrLost) && !errors.Is(err, errSlow): // Adopt found that the token does not hold the key
	default:
		e.reportTrouble(r, err)
	}
}

// leftEarly reports whether ctx ended the call before Redis had time to answer. That says nothing of Redis.
func (e *engine) leftEarly(r *request, err error) bool {
	var wait *gaveUp
	switch {
	case errors.As(err, &wait) && wait.last == nil: // nothing was sent
		return true
	case wait == nil && !errors.As(err, new(*node.CutShort)), r.attempts > 1:
		return false
	}
	kind := kindOfTrouble(err)
	return (kind == "timeout" || kind == "quorum") && e.now().Since(r.started) < r.cfg.timeout()/4
}

// reportTrouble calls Hooks.Trouble for a failed attempt, if it is due.
func (e *engine) reportTrouble(r *request, err error) {
	c := cause{kind: kindOfTrouble(err)}
	if hook := r.cfg.hooks.Trouble; hook != nil && e.troubles.due(c) {
		event := r.event(e, r.cfg.owner, 0)
		event.Cause, event.Err = c.kind, marked(err)
		hook(event)
	}
}

func kindOfTrouble(err error) string {
	switch {
	case errors.Is(err, ErrNoQuorum):
		return "quorum"
	case errors.Is(err, ErrNotReplicated):
		return "replicas"
	case errors.Is(err, ErrLost):
		return "slow"
	}
	return node.Cause(err)
}

// reportNode calls Hooks.Trouble for a failure of a node, if it is due. It does not wait for the hook.
func (e *engine) reportNode(name string, err error) {
	c := cause{node: name, kind: node.Cause(err)}
	if hook := e.cfg.hooks.Trouble; hook != nil && e.troubles.due(c) {
		go hook(Event{Strategy: e.strategy.name(), Node: name, Cause: c.kind, Err: marked(err)}) // ends with the hook
	}
}

// reportDegraded calls Hooks.Degraded: Redis refuses SUBSCRIBE or PUBLISH with err.
func (e *engine) reportDegraded(err error) {
	if hook := e.cfg.hooks.Degraded; hook != nil {
		hook(Event{Strategy: e.strategy.name(), Err: err})
	}
}
