package redlatch

import (
	"errors"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/node"
)

// troubleEvery is how often Hooks.Trouble hears of one cause.
const troubleEvery = time.Second

// troubles tells Hooks.Trouble what a Locker rides out, at most once in troubleEvery for one cause on one node.
type troubles struct {
	mu   sync.Mutex // guards the fields below
	told map[cause]time.Time
}

type cause struct{ node, kind string }

// due reports whether it is time to tell of a cause.
func (t *troubles) due(c cause) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if last, ok := t.told[c]; ok && now.Sub(last) < troubleEvery {
		return false
	}
	if t.told == nil {
		t.told = make(map[cause]time.Time)
	}
	t.told[c] = now
	return true
}

// met tells of an attempt of a waiter that failed for err, if that is news.
func (e *engine) met(r *request, err error) {
	c := cause{kind: kindOfTrouble(err)}
	if hook := r.cfg.hooks.Trouble; hook != nil && e.troubles.due(c) {
		event := r.event(e, r.cfg.token, 0)
		event.Cause, event.Err = c.kind, marked(err)
		hook(event)
	}
}

// kindOfTrouble returns Event.Cause.
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

// metOn tells of a node that failed for err, if that is news. It does not wait for the hook.
func (e *engine) metOn(name string, err error) {
	c := cause{node: name, kind: node.Cause(err)}
	if hook := e.cfg.hooks.Trouble; hook != nil && e.troubles.due(c) {
		go hook(Event{Strategy: e.strategy.name(), Node: name, Cause: c.kind, Err: marked(err)}) // ends with the hook
	}
}
