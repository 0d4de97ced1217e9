package redlatch

import (
	"context"
	"errors"
	"fmt"
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
