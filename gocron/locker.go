// Package redlatchgocron runs the jobs of gocron on one of many instances, by locks of redlatch.
//
// Each instance has a scheduler with the same jobs. There are two ways to run a job once:
//
//	NewLocker    a lock for each run: the jobs spread over the instances
//	NewElector   one instance leads, and runs all jobs until it stops or fails
//
// The package is github.com/redlatch/redlatch/gocron. Its name differs from the last element of that path, so that a
// file can import it beside github.com/go-co-op/gocron/v2.
//
// Neither way tells a running job that its lock was lost: gocron has no means for that. A job that must know takes a
// lock itself, by [redlatch.TryDo] with [redlatch.WithMinHold]: it gets a ctx that ends with the lock, and a fence.
package redlatchgocron

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/redlatch/redlatch"
)

// keyPrefix keeps the name of a job from being the key of another lock.
const keyPrefix = "gocron:"

// NewLocker returns a gocron.Locker that takes a lock of l for each run of a job, for gocron.WithDistributedLocker and
// gocron.WithDistributedJobLocker. opts apply to each lock.
//
// The key is "gocron:" and the job's name, behind the prefix of [redlatch.WithKeyPrefix]. Name each job with
// gocron.WithName. Otherwise its name is that of its function, such as main.main.func1, which a change of the code can
// change. Jobs with one name exclude each other.
//
// minHold keeps the key from others for that long after a run began, as [redlatch.WithMinHold] does. The schedulers
// do not tick at the same instant. Without minHold, a job that ends at once is run again by the instance that ticks
// next. Choose it by
//
//	splay < minHold < interval − splay
//
// where splay is how far apart the instances can be in one tick, and interval is the shortest time between two ticks of
// the job. 10 s, or half of the interval where that is less, suits most jobs. 0 is none, for jobs that always take
// longer than the splay, and for [redlatch.NewLegacySetNX], which refuses any other. A job can have a Locker, and so a
// minHold, of its own.
//
// Lock makes one attempt, as [redlatch.Locker.TryLock] does. If that fails, gocron skips the run on this instance and
// passes the error to gocron.AfterLockError. The error matches [redlatch.ErrNotAcquired] where another instance runs
// the job, or ran it less than minHold ago. It matches [redlatch.ErrUnavailable] in an outage of Redis: no instance
// that is cut off runs the job. On [redlatch.NewRedlock], instances that try at the same instant can refuse each other,
// and then nobody runs the job: use [NewElector] there.
//
// Unlock gives the lock back also where the ctx of the job has ended, so a shutdown leaves no lock behind. Its error
// is that of [redlatch.Lock.Unlock], which matches [redlatch.ErrLost] where the lock had ended before the job did.
// gocron drops this error, so use Lost of [redlatch.Hooks] to learn of it. An instance that crashes in a run keeps the
// others out until the TTL has passed, which is minHold at least: ticks until then are skipped.
//
// The error is [redlatch.ErrInvalidOption] where l is nil, or where l cannot work with minHold or with opts.
// [redlatch.WithToken] is refused, since instances with one token would all have the lock. Nothing is sent.
func NewLocker(l redlatch.Locker, minHold time.Duration, opts ...redlatch.Option) (gocron.Locker, error) {
	all := make([]redlatch.Option, 0, len(opts)+1)
	if minHold != 0 {
		all = append(all, redlatch.WithMinHold(minHold))
	}
	all = append(all, opts...)
	if err := check(l, keyPrefix, all); err != nil {
		return nil, fmt.Errorf("redlatchgocron: new locker: %w", err)
	}
	return &locker{redlatch: l, opts: all}, nil
}

type locker struct {
	redlatch redlatch.Locker
	opts     []redlatch.Option
}

// Lock is called for each run of a job.
func (l *locker) Lock(ctx context.Context, name string) (gocron.Lock, error) {
	lock, err := l.redlatch.TryLock(ctx, keyPrefix+name, l.opts...)
	if err != nil {
		return nil, err
	}
	return lock, nil
}

// check returns the error of options that l refuses. It has to call l to learn that, with a ctx that has ended, so that
// nothing is sent. Lead refuses WithToken too.
func check(l redlatch.Locker, key string, opts []redlatch.Option) error {
	ended, end := context.WithCancel(context.Background())
	end()
	err := redlatch.Lead(ended, l, key, func(context.Context, *redlatch.Lock) error { return nil }, opts...)
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
