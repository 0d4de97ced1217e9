package main

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/rediserr"
)

// A kind is what a key is, such as a lock or a semaphore, as its form in Redis shows.
type kind struct {
	name   string
	locker func(client redis.UniversalClient, opts ...redlatch.Option) (redlatch.Locker, error)
}

var (
	plainKind  = &kind{"lock", redlatch.NewSetNXPX}
	legacyKind = &kind{"legacy", redlatch.NewLegacySetNX}
	sharedKind = &kind{"shared", newShared} // a semaphore, or a read-write lock: readers look like the holders of one
)

func newShared(client redis.UniversalClient, opts ...redlatch.Option) (redlatch.Locker, error) {
	return redlatch.NewSemaphore(client, 1, opts...)
}

// anyKind is a Locker that shows and releases keys of any kind. It acquires none.
type anyKind struct {
	redlatch.Locker // of plain locks, or of a quorum

	others []redlatch.Locker
}

// findingKinds returns a Locker for keys of any kind on client.
func findingKinds(client redis.UniversalClient, opts []redlatch.Option) (redlatch.Locker, error) {
	plain, err := plainKind.locker(client, opts...)
	shared, err2 := sharedKind.locker(client, opts...)
	legacy, err3 := legacyKind.locker(client, opts...)
	return &anyKind{plain, []redlatch.Locker{shared, legacy}}, errors.Join(err, err2, err3)
}

// of returns the Locker for what key is, and its status. If the key is free, its waiters tell what it was.
// The user may lack the rights for other kinds than the one that key is.
func (l *anyKind) of(ctx context.Context, key string) (redlatch.Locker, redlatch.Status, error) {
	st, err := l.Locker.Inspect(ctx, key)
	if errors.Is(err, redlatch.ErrUnavailable) || err == nil && (isOurs(st) || st.Waiters > 0) {
		return l.Locker, st, err
	}
	for _, other := range l.others {
		found, failed := other.Inspect(ctx, key)
		switch {
		case failed == nil && (isOurs(found) || found.Waiters > 0), failed == nil && err != nil:
			return other, found, failed
		case failed != nil && err != nil && errors.Is(err, rediserr.ErrOtherData):
			err = failed // it may name a missing right
		}
	}
	return l.Locker, st, err
}

// of returns the Locker for what key is, and its status.
func (c *connection) of(ctx context.Context, key string) (redlatch.Locker, redlatch.Status, error) {
	if l, ok := c.Locker.(*anyKind); ok {
		return l.of(ctx, key)
	}
	st, err := c.Inspect(ctx, key)
	return c.Locker, st, err
}

// Inspect reports the status of a key of any kind.
func (l *anyKind) Inspect(ctx context.Context, key string) (redlatch.Status, error) {
	_, st, err := l.of(ctx, key)
	return st, err
}
