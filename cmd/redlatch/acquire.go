//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/redlatch/redlatch"
)

// acquire waits until the lock is granted, the timeout has passed or a signal arrives. It returns the signal.
func (f *runFlags) acquire(c *connection, signals <-chan os.Signal, r *reporter) (*redlatch.Lock, syscall.Signal, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if f.timeout > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, f.timeout)
		defer stop()
	}
	r.ends = func() bool { return f.try || ctx.Err() != nil }
	var opts []redlatch.Option
	if f.minHold > 0 { // not an option of the Locker: drop needs a handle without it
		opts = append(opts, redlatch.WithMinHold(f.minHold))
	}
	var lock *redlatch.Lock
	var err error
	over := make(chan struct{})
	go func() { // ends with ctx; acquire waits for it
		defer close(over)
		if f.try {
			lock, err = c.TryLock(ctx, f.key, opts...)
		} else {
			lock, err = lockThroughOutages(ctx, c, f.key, f.lease(), opts)
		}
	}()
	select {
	case <-over:
		return lock, 0, err
	case s := <-signals:
		cancel()
		<-over
		if lock != nil {
			err = f.drop(c, lock)
		}
		return nil, s.(syscall.Signal), err
	}
}

// lockThroughOutages waits for the lock, also if Redis is unavailable at the first attempt. The hooks of the reporter
// report that. A lock that another process has handed over is extended to the lease first: COMMAND could not end in time before
// the end of a claim.
func lockThroughOutages(
	ctx context.Context, l redlatch.Locker, key string, lease time.Duration, opts []redlatch.Option,
) (*redlatch.Lock, error) {
	for {
		lock, err := l.Lock(ctx, key, opts...)
		if err == nil && time.Until(lock.Until()) < lease/2 {
			if err = lock.Extend(ctx, lease); err != nil {
				_ = lock.Unlock(ctx)
			}
		}
		if err == nil {
			return lock, nil
		}
		if ctx.Err() != nil || !errors.Is(err, redlatch.ErrUnavailable) && !errors.Is(err, redlatch.ErrLost) {
			return nil, err
		}
		select {
		case <-time.After(outagePause/2 + rand.N(outagePause/2)):
		case <-ctx.Done():
			return nil, fmt.Errorf("gave up waiting: %w: %w", ctx.Err(), err)
		}
	}
}

// outagePause is the longest pause between attempts while Redis is unavailable.
const outagePause = time.Second

// drop releases a lock under which nothing ran. Its min hold does not count: another handle of it has none. If this
// fails, the lock ends with its TTL and its min hold.
func (f *runFlags) drop(c *connection, lock *redlatch.Lock) error {
	if f.minHold > 0 {
		var err error
		if lock, err = c.Adopt(context.Background(), f.key, lock.Token()); err != nil {
			return err
		}
	}
	return c.release(lock, 0)
}

// reporter reports on stderr what a Locker retries or tolerates. It also keeps the result of the last renewal.
type reporter struct {
	ends func() bool // reports that run ends with the error of an attempt that fails now

	mu     sync.Mutex // guards the fields below
	told   map[string]bool
	failed error // why the last renewal failed; nil if it succeeded
}

// hooks returns the hooks of the lock.
func (r *reporter) hooks() redlatch.Hooks {
	return redlatch.Hooks{
		Trouble: func(e redlatch.Event) {
			if e.Node != "" {
				r.report(e.Node+" "+e.Cause, e.Err)
			} else if !r.ends() {
				r.report("", e.Err)
			}
		},
		RenewFailed: func(e redlatch.Event) { r.renewed(e.Err) },
		Renewed:     func(redlatch.Event) { r.renewed(nil) },
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
