// Package redlatchgocron runs each job of gocron on one of many instances, with locks of redlatch.
//
// Each instance has a scheduler with the same jobs. There are two ways to run a job once:
//
//	NewLocker    a lock for each run: the jobs spread over the instances
//	NewElector   one instance leads, and runs all jobs until it stops or fails
//
// The import path is github.com/redlatch/redlatch/gocron. The name of the package differs from the
// last element of that path, so that a file can also import github.com/go-co-op/gocron/v2.
//
// Neither way tells a running job that its lock was lost, since gocron has no means for that. A job
// that must know calls [redlatch.TryDo] itself, with [redlatch.WithMinHold]. It gets a ctx that
// ends with the lock, and a fence.
package redlatchgocron

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/redlatch/redlatch"
)

// keyPrefix separates the names of jobs from the keys of other locks.
const keyPrefix = "gocron:"

// NewLocker returns a [gocron.Locker] for [gocron.WithDistributedLocker] and
// [gocron.WithDistributedJobLocker]. It acquires a lock of l for each run of a job. opts apply to
// each lock.
//
// The key is "gocron:" followed by the name of the job. A prefix of [redlatch.WithKeyPrefix] comes
// before both. Name each job with [gocron.WithName], and begin with the name of the service. Otherwise
// gocron names it after its function, such as main.main.func1, which can change when the code changes.
// Jobs with the same name exclude each other, so jobs of several tenants that run one function need
// different names.
//
// minHold keeps the key from others for that time after a run began, as [redlatch.WithMinHold]
// does. The schedulers do not tick at the same instant. Without minHold, a job that ends at once
// runs again on the instance that ticks next. Choose minHold so that
//
//	splay < minHold < interval − splay
//
// where splay is the largest time between two instances at one tick, and interval is the shortest time
// between two ticks of the job. Most jobs can use 10 s, or half of the interval if that is shorter. 0
// means no min hold, even if l has one. Use 0 for jobs that always take longer than the splay, and for
// [redlatch.NewLegacySetNX], which refuses any other value. A job can have its own Locker, and so its
// own minHold.
//
// Lock makes one attempt, as [redlatch.Locker.TryLock] does. If it fails, gocron skips the run on
// this instance and passes the error to [gocron.AfterLockError]. The error matches
// [redlatch.ErrNotAcquired] if another instance runs the job, or began to run it less than minHold
// ago. It matches [redlatch.ErrUnavailable] in an outage of Redis, so an instance that is cut off
// does not run the job. If a run of this Locker keeps the key, the error says so: an earlier run of
// the job still lasts, or two jobs have one name.
//
// Unlock releases the lock even if the ctx of the job has ended, so a shutdown leaves no lock behind.
// It returns the error of [redlatch.Lock.Unlock]. It matches [redlatch.ErrLost] if the lock ended
// before the job did. gocron drops this error, but [redlatch.Hooks.Lost] reports it. If an instance
// crashes during a run, ticks are skipped until the TTL has passed. The TTL is at least minHold.
//
// The error matches [redlatch.ErrInvalid] if l is nil, or if l cannot work with minHold or with opts.
// This includes [redlatch.WithMaxWait], because no run waits. NewLocker sends nothing to Redis.
func NewLocker(l redlatch.Locker, minHold time.Duration, opts ...redlatch.Option) (gocron.Locker, error) {
	if i := slices.IndexFunc(opts, func(opt redlatch.Option) bool { return opt == nil }); i >= 0 {
		return nil, fmt.Errorf("redlatchgocron: new locker: %w: option %d is nil", redlatch.ErrInvalid, i)
	}
	all := append([]redlatch.Option{redlatch.WithMinHold(minHold)}, opts...)
	if err := check(l, keyPrefix, all); err != nil {
		return nil, fmt.Errorf("redlatchgocron: new locker: %w", err)
	}
	return &locker{redlatch: l, minHold: minHold, opts: all}, nil
}

type locker struct {
	redlatch redlatch.Locker
	minHold  time.Duration
	opts     []redlatch.Option

	mu   sync.Mutex // guards the fields below, and those of each run
	runs []*run     // that ask for a key, or may keep one
}

// Format prints what fmt prints of the Locker of redlatch.
func (l *locker) Format(f fmt.State, verb rune) {
	_, _ = fmt.Fprintf(f, fmt.FormatString(f, verb), l.redlatch)
}

// Lock is called for each run of a job.
func (l *locker) Lock(ctx context.Context, name string) (gocron.Lock, error) {
	r, asked := &run{locker: l, name: name}, time.Now()
	l.mu.Lock()
	l.runs = append(l.runs, r) // before the grant, since another job may be refused by it before TryLock returns
	l.mu.Unlock()
	lock, err := l.redlatch.TryLock(ctx, keyPrefix+name, l.opts...)
	if err == nil && lock == nil {
		err = errNoLock
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r.lock, r.until, r.ended = lock, time.Now().Add(l.minHold), err != nil
	l.runs = slices.DeleteFunc(l.runs, func(o *run) bool { return o.ended && (o == r || !asked.Before(o.until)) })
	started := slices.ContainsFunc(l.runs, func(o *run) bool { return o.name == name })
	switch {
	case err == nil:
		return r, nil
	case errors.Is(err, redlatch.ErrNotAcquired) && started:
		err = fmt.Errorf("this process has already started a job named %q (if these are two jobs, name each): %w",
			name, err)
	}
	return nil, err
}

// errNoLock is the error for a fake that grants nothing.
var errNoLock = fmt.Errorf("%w: the Locker returned neither an error nor a lock", redlatch.ErrInvalid)

// A run is one run of a job, from the call of Lock on.
type run struct {
	locker *locker
	name   string
	lock   *redlatch.Lock
	until  time.Time // the end of its min hold, or that of Unlock if that is later
	ended  bool      // Unlock has returned
}

func (r *run) Unlock(ctx context.Context) error {
	err := r.lock.Unlock(ctx)
	r.locker.mu.Lock()
	defer r.locker.mu.Unlock()
	r.ended = true
	if now := time.Now(); r.until.Before(now) {
		r.until = now
	}
	return err
}

// check returns an error if l refuses opts. Nothing is sent.
func check(l redlatch.Locker, key string, opts []redlatch.Option) error {
	_, err := redlatch.NewElection(l, key, opts...)
	var refused *redlatch.Error
	if errors.As(err, &refused) {
		return refused.Err // without the op and the key
	}
	return nil
}
