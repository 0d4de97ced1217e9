package redlatch

import (
	"context"
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
	if ctx != context.Background() {
		b.ctx = ctx
	}
	return b.lent()
}

// lent returns what stands for the ctx that was lent. Only the goroutine that lends calls it, until it
// takes ctx back: nobody else changes the loan.
func (b *loan) lent() context.Context {
	if b.ctx == nil {
		return context.Background()
	}
	return b
}

// over takes ctx back. The call that has lent it is about to return.
func (b *loan) over() {
	if b.ctx == nil { // see lent
		return
	}
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

// wasLent stands for a ctx that was taken back.
var wasLent = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

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
