package handoff

import (
	"context"
	"sync"
	"time"
)

// Turns lets the goroutines of a process that wait for one key poll one at a time, in the order in which they came.
type Turns struct {
	mu     sync.Mutex // guards the fields below
	keys   map[string]*turn
	served map[string]*time.Timer // keys that others want, as Released says; each timer forgets its key
}

// A turn exists while somebody has it or waits for it.
type turn struct {
	taken chan struct{} // holds one value while somebody has the turn; its senders queue in order
	users int
}

// Take waits for the turn of the key. It reports false if ctx ended first. Otherwise the caller must give the turn
// back.
func (t *Turns) Take(ctx context.Context, key string) bool {
	t.mu.Lock()
	if t.keys == nil {
		t.keys = make(map[string]*turn)
	}
	mine := t.keys[key]
	if mine == nil {
		mine = &turn{taken: make(chan struct{}, 1)}
		t.keys[key] = mine
	}
	mine.users++
	t.mu.Unlock()
	select {
	case mine.taken <- struct{}{}:
		return true
	case <-ctx.Done():
		t.leave(key, mine)
		return false
	}
}

// Give passes the turn to the next goroutine.
func (t *Turns) Give(key string) {
	t.mu.Lock()
	mine := t.keys[key]
	t.mu.Unlock()
	<-mine.taken
	t.leave(key, mine)
}

// leave removes a turn that nobody uses any more.
func (t *Turns) leave(key string, mine *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if mine.users--; mine.users == 0 {
		delete(t.keys, key)
	}
}

// Released notes that a key was released that others want. JustServed reports it for the time within.
func (t *Turns) Released(key string, within time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.served == nil {
		t.served = make(map[string]*time.Timer)
	}
	if timer := t.served[key]; timer != nil && timer.Reset(within) {
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(within, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.served[key] == timer {
			delete(t.served, key)
		}
	})
	t.served[key] = timer
}

// JustServed reports whether this process has just released the key, and others want it.
func (t *Turns) JustServed(key string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.served[key] != nil
}
