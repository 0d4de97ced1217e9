//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/redlatch/redlatch"
)

// acquire waits until the lock is granted, the timeout has passed or a signal arrives. It returns
// the signal.
func (f *runFlags) acquire(
	c *connection, signals <-chan os.Signal, r *reporter,
) (*redlatch.Lock, syscall.Signal, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	timed := ctx
	if f.timeout > 0 {
		var stop context.CancelFunc
		timed, stop = context.WithTimeout(ctx, f.timeout)
		defer stop()
	}
	r.ends = func() bool { return f.try || left(timed) <= 0 }
	var lock *redlatch.Lock
	var err error
	over := make(chan struct{})
	go func() { // ends with timed; acquire waits for it
		defer close(over)
		lock, err = f.lockThroughOutages(ctx, timed, c)
	}()
	select {
	case <-over:
		return lock, 0, err
	case s := <-signals:
		cancel()
		<-over
		if lock != nil {
			err = c.release(lock, 0)
		}
		return nil, s.(syscall.Signal), err
	}
}

// lockThroughOutages waits for the lock, also if Redis is unavailable at the first attempt. The
// hooks of the reporter report that. With -try it makes one attempt. ctx ends with a signal, and
// timed, a child of it, with the timeout, too.
func (f *runFlags) lockThroughOutages(ctx, timed context.Context, c *connection) (*redlatch.Lock, error) {
	acquire := f.lock
	if f.try {
		acquire = f.tryLock
	}
	var opts []redlatch.Option
	began := time.Now()
	unavailable := time.Duration(0) // how long Redis was at first
	for {
		lock, err := acquire(ctx, c, opts)
		if err == nil {
			if err = f.prolong(timed, lock); err == nil {
				return lock, nil
			}
			_ = c.release(lock, 0) //nolint:contextcheck // ctx may have ended. If it fails, the lock ends with its TTL
		}
		again := !f.try && left(timed) > 0 && (errors.Is(err, redlatch.ErrUnavailable) || errors.Is(err, redlatch.ErrLost))
		if again && pause(timed, outagePause) {
			if errors.Is(err, redlatch.ErrUnavailable) {
				unavailable = time.Since(began)
			}
			if f.timeout > 0 { // it counts from the first call
				opts = []redlatch.Option{redlatch.WithMaxWait(max(left(timed), time.Millisecond).Round(time.Millisecond))}
			}
			continue
		}
		switch { // err knows of a part of it
		case !again && opts == nil, ctx.Err() != nil, left(timed) >= time.Millisecond:
		case unavailable > 0 && !errors.Is(err, redlatch.ErrUnavailable):
			const text = "waited %v, but Redis was unavailable for the first %v: %w"
			err = fmt.Errorf(text, f.timeout, unavailable.Round(time.Millisecond), err)
		default:
			err = fmt.Errorf("waited %v: %w", f.timeout, err)
		}
		return nil, err
	}
}

// left returns the time until ctx ends, by the clock: its timer may be late.
func left(ctx context.Context) time.Duration {
	end, bounded := ctx.Deadline()
	switch {
	case ctx.Err() != nil:
		return 0
	case !bounded:
		return math.MaxInt64
	}
	return time.Until(end)
}

// prolong makes a lock last for the lease, before COMMAND is started. One that another process has
// handed over is short, so COMMAND could not end in time before its end. It also makes the lock
// outlast a crash for the min hold. That is no option of the Locker, so that a lock under which
// nothing ran keeps nobody out. A late reply costs a try, and not the lock.
func (f *runFlags) prolong(ctx context.Context, lock *redlatch.Lock) error {
	if f.minHold == 0 && time.Until(lock.Until()) >= f.lease()/2 {
		return nil
	}
	for {
		err := lock.Extend(ctx, max(f.lease(), f.minHold))
		if f.try || lock.Err() != nil || !errors.Is(err, redlatch.ErrUnavailable) || !pause(ctx, outagePause/10) {
			return err
		}
	}
}

// outagePause is the longest pause between attempts while Redis is unavailable.
const outagePause = time.Second

// pause waits for half of longest to longest. It returns false if ctx ended first.
func pause(ctx context.Context, longest time.Duration) bool {
	select {
	case <-time.After(longest/2 + rand.N(longest/2)):
		return true
	case <-ctx.Done():
		return false
	}
}

// reporter reports on stderr what a Locker retries or tolerates. It also keeps the result of the
// last renewal.
type reporter struct {
	ends func() bool // reports that run ends with the error of an attempt that fails now

	mu     sync.Mutex // guards the fields below
	told   map[string]bool
	failed error // why the last renewal failed; nil if it succeeded
}

// hooks returns the hooks of the lock.
func (r *reporter) hooks() redlatch.Hooks {
	return redlatch.Hooks{
		Trouble: func(_ context.Context, e redlatch.Event) {
			if e.Node != "" {
				r.report(e.Node+" "+string(e.Cause), e.Err)
			} else if !r.ends() {
				r.report("", e.Err)
			}
		},
		RenewFailed: func(_ context.Context, e redlatch.Event) { r.renewed(e.Err) },
		Renewed:     func(context.Context, redlatch.Event) { r.renewed(nil) },
	}
}

// report reports a failed attempt, or a cause of failures on a node of a quorum, once.
func (r *reporter) report(what string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.told[what] {
		if r.told == nil {
			r.told = make(map[string]bool)
		}
		r.told[what] = true
		complain(fmt.Errorf("continuing despite an error: %w", err))
	}
}

func (r *reporter) renewed(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = err
}

// renewal returns why the last renewal failed. It is nil if the renewal succeeded.
func (r *reporter) renewal() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}
