package redlatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Do runs fn while it holds a lock on key. It waits for the lock as [Locker.Lock] does, and releases it
// when fn returns or panics. ctx bounds the wait and the work. [WithMaxWait] bounds the wait alone. The
// ctx of fn is a child of ctx that ends when the lock does, with cause [ErrLost] or [ErrMaxHold]. If fn
// unlocks the lock itself, the cause is [ErrReleased].
//
// If l or fn is nil, or l grants a nil or a zero [Lock], the error is [ErrInvalid]. If Lock fails, the
// error matches whatever the error of Lock matches. If ctx has ended when the lock is granted, the
// error matches ctx's error and its cause. Exception: a cause that this package returned. In these
// cases fn was not called, and [WithMinHold] does not apply.
//
// Otherwise Do returns the error of fn. If that matches [ErrNotAcquired], [ErrUnavailable],
// [ErrNoQuorum] or [ErrNotReplicated], as an error of another lock does, Do returns a [FuncError],
// which does not match. So an error of Do that matches one of these four says that fn was not called.
// If the lock ended before fn did, the error also matches [ErrLost], and another owner may have held
// the lock while fn ran. Only [Hooks.Released] reports an error of the release: the work was done under
// the lock, and the key ends with its TTL.
func Do(
	ctx context.Context, l Locker, key string,
	fn func(ctx context.Context, lock *Lock) error, opts ...Option,
) error {
	if err := checkCall(l, fn == nil); err != nil {
		return wrap("do", key, err)
	}
	lock, err := obtain(ctx, "do", Locker.Lock, l, key, opts)
	if err != nil {
		return err
	}
	return hold(ctx, "do", lock, judged(fn))
}

// TryDo is [Do] without the wait: it makes one attempt, as [Locker.TryLock] does. If the attempt fails,
// TryDo does not call fn, and the error matches whatever the error of [Locker.TryLock] matches:
// [ErrNotAcquired] if another owner has key.
func TryDo(
	ctx context.Context, l Locker, key string,
	fn func(ctx context.Context, lock *Lock) error, opts ...Option,
) error {
	if err := checkCall(l, fn == nil); err != nil {
		return wrap("try do", key, err)
	}
	lock, err := obtain(ctx, "try do", Locker.TryLock, l, key, opts)
	if err != nil {
		return err
	}
	return hold(ctx, "try do", lock, judged(fn))
}

// DoAll runs fn while it holds locks on all keys. It sorts the keys and acquires each of them once, in
// that order. It waits for each as [Locker.Lock] does, and for all of them together at most for
// [WithMaxWait]. Callers may name their keys in any order: they never deadlock, as long as none of them
// holds another lock during the call. opts apply to each lock.
//
// locks has the order of the sorted keys, without duplicates. The ctx of fn is a child of ctx that ends
// as soon as any lock ends. Its cause is the Err of that lock. When fn returns or panics, DoAll
// releases all locks in reverse order.
//
// If l, fn, keys or a key is nil or empty, the error is [ErrInvalid]. If a key cannot be acquired, the
// error matches whatever the error of Lock matches. If a lock ends before all are acquired, the error
// matches [ErrLost]. In these cases DoAll has not called fn, and it releases the acquired locks at
// once, without [WithMinHold]. Otherwise DoAll returns the error of fn, which also matches [ErrLost] if
// a lock was lost, as in [Do].
func DoAll(
	ctx context.Context, l Locker, keys []string,
	fn func(ctx context.Context, locks []*Lock) error, opts ...Option,
) error {
	return doAll(ctx, "do all", Locker.Lock, l, keys, fn, opts)
}

// TryDoAll is [DoAll] without the wait: it makes one attempt at each key, as [Locker.TryLock] does. If
// one fails, TryDoAll releases the acquired locks and does not call fn. The error matches whatever the
// error of the attempt matches: [ErrNotAcquired] if another owner has that key.
func TryDoAll(
	ctx context.Context, l Locker, keys []string,
	fn func(ctx context.Context, locks []*Lock) error, opts ...Option,
) error {
	return doAll(ctx, "try do all", Locker.TryLock, l, keys, fn, opts)
}

// doAll runs fn while it holds all keys, each acquired by lock.
func doAll(
	ctx context.Context, op string, acquire acquirer,
	l Locker, keys []string, fn func(ctx context.Context, locks []*Lock) error, opts []Option,
) error {
	if err := checkCallOfAll(l, keys, fn == nil); err != nil {
		return wrap(op, "", err)
	}
	keys = slices.Compact(slices.Sorted(slices.Values(keys))) // all callers use the same order
	opts = append(slices.Clip(opts), waitingSince(time.Now()))
	locks, began := make([]*Lock, 0, len(keys)), false
	var next func(held context.Context) error // held ends when the first of locks does
	next = func(held context.Context) error {
		if len(locks) == len(keys) {
			if err := firstEnd(op, locks); err != nil {
				return err
			}
			began = true
			return ofFunc(fn(held, locks))
		}
		k, err := obtain(held, op, acquire, l, keys[len(locks)], opts)
		if err != nil {
			if end := firstEnd(op, locks); end != nil && ctx.Err() == nil {
				return end // the loss of an earlier lock ended the wait
			}
			return err
		}
		return hold(held, op, k, func(held context.Context, k *Lock) error {
			defer func() {
				if !began { // another key was not acquired, or a hook panics
					k.dropMinHold()
				}
			}()
			locks = append(locks, k)
			return next(held)
		})
	}
	return next(ctx)
}

// checkCall refuses a nil Locker and a nil fn.
func checkCall(l Locker, withoutFn bool) error {
	switch {
	case isNil(l):
		return invalid("the Locker is nil")
	case withoutFn:
		return invalid("fn is nil")
	}
	return nil
}

// checkCallOfAll refuses also no keys, and an empty key.
func checkCallOfAll(l Locker, keys []string, withoutFn bool) error {
	err := checkCall(l, withoutFn)
	switch {
	case err != nil:
	case len(keys) == 0:
		err = invalid("there are no keys")
	case slices.Contains(keys, ""):
		err = invalid("a key is empty")
	}
	return err
}

// An acquirer is Locker.Lock or Locker.TryLock.
type acquirer func(Locker, context.Context, string, ...Option) (*Lock, error)

// obtain acquires the lock for an fn of op, and names op in the error. If ctx has ended by then, fn
// is not called.
func obtain(ctx context.Context, op string, acquire acquirer, l Locker, key string, opts []Option) (*Lock, error) {
	lock, err := granted(acquire(l, ctx, key, opts...))
	switch {
	case err != nil:
		return nil, wrap(op, key, err)
	case ctx.Err() != nil:
		lock.discard(ctx)
		return nil, wrap(op, key, ctxError(ctx))
	}
	return lock, nil
}

// granted refuses a Lock that no Locker of this package has granted: a Locker that another package
// made may return none, or a zero one.
func granted(lock *Lock, err error) (*Lock, error) {
	if err == nil && (lock == nil || lock.isZero()) {
		return nil, invalid("the Locker returned neither an error nor a lock that was granted")
	}
	return lock, err
}

// judged returns fn with errors that match none of notCalled.
func judged(fn func(ctx context.Context, lock *Lock) error) func(ctx context.Context, lock *Lock) error {
	return func(ctx context.Context, lock *Lock) error { return ofFunc(fn(ctx, lock)) }
}

// hold runs fn under lock, and releases it when fn returns or panics. It returns the errors of fn
// and of a lock that ended before fn did. Other errors of the release are for Hooks.Released: the
// work was done under the lock.
func hold(ctx context.Context, op string, lock *Lock, fn func(ctx context.Context, lock *Lock) error) (err error) {
	defer func() {
		why, until := lock.Err(), lock.Until()
		lost := wrap(op, lock.Key(), lock.Unlock(ctx))
		switch {
		case !errors.Is(lost, ErrLost):
		case why == nil && !time.Now().Before(until): // the lease may have ended after fn
		case err == nil:
			err = lost
		case why != nil && errors.Is(err, why): // fn says so itself
			if !errors.As(err, new(*Error)) {
				err = &Error{Op: op, Key: lock.Key(), Err: err}
			}
		default:
			err = fmt.Errorf("%w: %w", err, lost)
		}
	}()
	return fn(lock.Context(ctx), lock)
}

// firstEnd returns the error of the first lock that has ended, or nil.
func firstEnd(op string, locks []*Lock) error {
	for _, lock := range locks {
		if err := lock.Err(); err != nil {
			return wrap(op, lock.Key(), fmt.Errorf("%w, before all locks were acquired", err))
		}
	}
	return nil
}
