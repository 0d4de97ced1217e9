package peers

import (
	"context"
	"time"

	"github.com/bsm/redislock"
)

// Redislock is bsm/redislock. It does not wait by default; here it asks every 100 ms.
func Redislock() Peer { return RedislockEvery(100 * time.Millisecond) }

// RedislockEvery is Redislock that asks at that interval.
func RedislockEvery(interval time.Duration) Peer {
	return Peer{
		Name:   "bsm/redislock",
		Direct: scripts,
		Open: func(target Target) (Locker, error) {
			c, err := connect(target)
			return &redislockLocker{redislock.New(c.UniversalClient), c, interval}, err
		},
	}
}

type redislockLocker struct {
	locks    *redislock.Client
	client   client
	interval time.Duration
}

func (l *redislockLocker) Lock(ctx context.Context, key string) (Lock, error) {
	lock, err := l.locks.Obtain(ctx, key, TTL, &redislock.Options{
		RetryStrategy: redislock.LinearBackoff(l.interval),
	})
	if err != nil {
		return nil, err
	}
	return redislockLock{lock}, nil
}

func (l *redislockLocker) Close() error { return l.client.Close() }

type redislockLock struct{ *redislock.Lock }

func (k redislockLock) Unlock(ctx context.Context) error { return k.Release(ctx) }
