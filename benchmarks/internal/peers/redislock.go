package peers

import (
	"context"
	"time"

	"github.com/bsm/redislock"
)

// Redislock is bsm/redislock. It does not wait by default; here it asks every 100 ms.
func Redislock() Peer {
	return Peer{
		Name:   "bsm/redislock",
		Direct: scripts,
		Open: func(target Target) (Locker, error) {
			c, err := connect(target)
			return &redislockLocker{redislock.New(c.UniversalClient), c}, err
		},
	}
}

type redislockLocker struct {
	locks  *redislock.Client
	client client
}

func (l *redislockLocker) Lock(ctx context.Context, key string) (Lock, error) {
	lock, err := l.locks.Obtain(ctx, key, TTL, &redislock.Options{
		RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond),
	})
	if err != nil {
		return nil, err
	}
	return redislockLock{lock}, nil
}

func (l *redislockLocker) Close() error { return l.client.Close() }

type redislockLock struct{ *redislock.Lock }

func (k redislockLock) Unlock(ctx context.Context) error { return k.Release(ctx) }
