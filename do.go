package redlatch

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/node"
)

// Do runs fn under a lock on key, which it waits for as [Locker.Lock] does. fn's ctx is a child of
// ctx that ends when the lock does, with cause ErrLost or ErrMaxHold, or ErrReleased where fn itself
// unlocked, as it may. The lock is released when fn returns or panics.
//
// The error is ErrInvalidOption where l or fn is nil; Lock's, and fn was not called; else fn's, joined
// with Unlock's where that failed: where fn ran and the error matches ErrLost, fn may not have been
// alone all the time.
func Do(ctx context.Context, l Locker, key string, fn func(ctx context.Context, lock *Lock) error, opts ...Option) error {
	if err := checkCall(l, fn == nil); err != nil {
		return wrap("do", key, err)
	}
	lock, err := l.Lock(ctx, key, opts...)
	if err != nil {
		return err
	}
	return hold(ctx, lock, fn)
}

// TryDo is [Do] without the wait: it makes one attempt, as [Locker.TryLock] does. Where that fails, fn is not
// called and the error is TryLock's: ErrNotAcquired where another owner has key.
func TryDo(ctx context.Context, l Locker, key string, fn func(ctx context.Context, lock *Lock) error, opts ...Option) error {
	if err := checkCall(l, fn == nil); err != nil {
		return wrap("try do", key, err)
	}
	lock, err := l.TryLock(ctx, key, opts...)
	if err != nil {
		return err
	}
	return hold(ctx, lock, fn)
}

// DoAll runs fn under locks on all keys, or does not call it. It sorts the keys and acquires each once, in that
// order. It waits for each as [Locker.Lock] does, and releases in reverse. Callers that name their keys in any
// order never deadlock, as long as none of them holds another lock meanwhile. opts apply to each lock.
//
// locks come in the order of the sorted keys, without duplicates. fn's ctx is a child of ctx that ends when the
// first of the locks does; its cause is the Err of that lock. All locks are released when fn returns or panics.
//
// The error is ErrInvalidOption where l or fn is nil, or where keys is empty or has an empty key. It is Lock's
// where a key was not acquired. It matches ErrLost where a lock ended before the last was acquired. In these cases
// fn was not called, and what was acquired is released. Otherwise the error is fn's. Those of Unlock are joined, as
// in [Do]. With [WithMinHold], keys that are given back are kept until that has passed all the same.
func DoAll(ctx context.Context, l Locker, keys []string, fn func(ctx context.Context, locks []*Lock) error, opts ...Option) error {
	err := checkCall(l, fn == nil)
	switch {
	case err != nil:
	case len(keys) == 0:
		err = invalid("there are no keys")
	case slices.Contains(keys, ""):
		err = invalid("a key is empty")
	}
	if err != nil {
		return wrap("do all", "", err)
	}
	keys = slices.Compact(slices.Sorted(slices.Values(keys))) // the one order of all callers
	locks := make([]*Lock, 0, len(keys))
	var next func(held context.Context) error // held ends when the first of locks does
	next = func(held context.Context) error {
		if len(locks) == len(keys) {
			if err := firstEnd(locks); err != nil {
				return err
			}
			return fn(held, locks)
		}
		lock, err := l.Lock(held, keys[len(locks)], opts...)
		if err != nil {
			if end := firstEnd(locks); end != nil && ctx.Err() == nil {
				return end // this ended the wait
			}
			return err
		}
		return hold(held, lock, func(held context.Context, lock *Lock) error {
			locks = append(locks, lock)
			return next(held)
		})
	}
	return next(ctx)
}

// Lead makes fn the work of a leader, one of all that call Lead with key. Until ctx ends it waits for the lock, as
// [Locker.Lock] does, runs fn, releases, pauses, and waits again. fn's ctx is that of [Do]. fn must return when its
// ctx ends, since another may lead from then on. [WithMaxHold] bounds a term.
//
// An error of fn ends its term and nothing else. Lead neither returns it nor reports it, so fn must handle its own
// errors. To stop, cancel ctx: fn can call a cancel function that it closes over. If fn panics, the lock is
// released, and the panic goes on to the caller.
//
// Lead goes on after a lost lock and after an outage of Redis. Hooks.Trouble reports the errors of Lock. After a
// term the pause is 0.5 to 1 s, at random. Each time Lock fails it doubles, up to 8 to 16 s.
//
// Where ctx ended, the error matches ctx's error and its cause. Any other is returned at once, since retrying cannot
// fix it: ErrInvalidOption, [errors.ErrUnsupported], or that of a key of another type. (On [NewRedlock] that is
// ErrNoQuorum, and Lead tries again.) [WithToken] is refused: each term needs a token of its own.
func Lead(ctx context.Context, l Locker, key string, fn func(ctx context.Context, lock *Lock) error, opts ...Option) error {
	err := checkCall(l, fn == nil)
	if err == nil {
		var cfg config
		if cfg, err = cfg.with(opts); err == nil && cfg.token != "" {
			err = invalid("WithToken: a late release of one term would end the next")
		}
	}
	if err != nil {
		return wrap("lead", key, err)
	}
	opts = slices.Concat(opts, []Option{ridingOut})
	for pause := shortestRecess; ; {
		lock, err := l.Lock(ctx, key, opts...)
		switch {
		case err == nil:
			_ = hold(ctx, lock, fn) // fn's error ends its term, and hooks report Unlock's
			pause = shortestRecess
		case permanent(err):
			return err
		}
		if !sleep(ctx, pause/2+rand.N(pause/2)) {
			return wrap("lead", key, node.CtxError(ctx))
		}
		if err != nil {
			pause = min(2*pause, longestRecess)
		}
	}
}

// The pauses of Lead: after a term, and the longest while Lock fails. Half of each is random.
const (
	shortestRecess = time.Second
	longestRecess  = 16 * time.Second
)

// ridingOut is the option of a caller that tries again whatever Lock fails with.
func ridingOut(cfg *config) error {
	cfg.ridingOut = true
	return nil
}

// checkCall refuses what no function of this file can work with.
func checkCall(l Locker, withoutFn bool) error {
	switch {
	case l == nil:
		return invalid("the Locker is nil")
	case withoutFn:
		return invalid("fn is nil")
	}
	return nil
}

// hold runs fn under lock, and releases it when fn returns or panics.
func hold(ctx context.Context, lock *Lock, fn func(ctx context.Context, lock *Lock) error) (err error) {
	defer func() {
		switch unlockErr := lock.Unlock(ctx); {
		case unlockErr == nil, errors.Is(unlockErr, ErrReleased): // fn may have unlocked
		case err == nil:
			err = unlockErr
		default:
			err = fmt.Errorf("%w: %w", err, unlockErr)
		}
	}()
	return fn(lock.Context(ctx), lock)
}

// firstEnd returns why one of locks has ended before fn was called, nil where none has.
func firstEnd(locks []*Lock) error {
	for _, lock := range locks {
		if err := lock.Err(); err != nil {
			return wrap("do all", lock.Key(), fmt.Errorf("%w, before all locks were acquired", err))
		}
	}
	return nil
}
