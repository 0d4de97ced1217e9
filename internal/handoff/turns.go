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
	last  error // the outcome of the newest attempt of a user
}

// Take waits for the turn of the key, after an attempt with the outcome last. It reports false if ctx ended first, and
// returns the outcome of the newest attempt of this process. Otherwise the caller must give the turn back.
func (t *Turns) Take(ctx context.Context, key string, last error) (ok bool, newest error) {
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
	mine.last = last
	t.mu.Unlock()
	select {
	case mine.taken <- struct{}{}:
		ok = true
	case <-ctx.Done():
		defer t.leave(key, mine) // after the unlock below
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return ok, mine.last
}

// Note notes the outcome of an attempt of whoever has the turn.
func (t *Turns) Note(key string, last error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.keys[key].last = last
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
