package peers

import (
	"cmp"
	"context"
	"errors"
	"math"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
)

// Redsync is go-redsync/redsync with its default backoff, 50 to 250 ms, and no limit of tries: by
// default it fails after 32.
func Redsync() Peer {
	return Peer{
		Name:   "redsync",
		Direct: append([]string{"set"}, scripts...), // its scripts get and del
		Open: func(target Target) (Locker, error) {
			c, err := connect(target)
			return newRedsync([]client{c}), err
		},
		OpenQuorum: func(nodes []Target) (Locker, error) {
			return newRedsync(connectAll(nodes)), nil
		},
	}
}

func newRedsync(clients []client) *redsyncLocker {
	var pools []redis.Pool
	for _, c := range clients {
		pools = append(pools, goredis.NewPool(c.UniversalClient))
	}
	return &redsyncLocker{redsync.New(pools...), clients}
}

type redsyncLocker struct {
	sync    *redsync.Redsync
	clients []client
}

func (l *redsyncLocker) Lock(ctx context.Context, key string) (Lock, error) {
	m := l.sync.NewMutex(key, redsync.WithExpiry(TTL), redsync.WithTries(math.MaxInt))
	if err := m.LockContext(ctx); err != nil {
		return nil, err
	}
	return redsyncLock{m}, nil
}

func (l *redsyncLocker) Close() error { return closeAll(l.clients) }

type redsyncLock struct{ *redsync.Mutex }

var errNotUnlocked = errors.New("redsync: not unlocked")

func (k redsyncLock) Unlock(ctx context.Context) error {
	ok, err := k.UnlockContext(ctx)
	if ok { // err is that of a minority of the nodes
		return nil
	}
	return cmp.Or(err, errNotUnlocked)
}
