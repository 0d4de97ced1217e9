package peers

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
)

// Redlatch is this library, as it is by default: with fences, renewal and a queue.
func Redlatch() Peer {
	open := func(target Target, ttl time.Duration) (Locker, error) {
		return openRedlatch(target, func(c redis.UniversalClient) (redlatch.Locker, error) {
			return redlatch.NewSetNXPX(c, redlatch.WithTTL(ttl))
		})
	}
	return Peer{
		Name:         "redlatch",
		Direct:       scripts,
		Open:         func(target Target) (Locker, error) { return open(target, TTL) },
		OpenRenewing: open,
		OpenQuorum: func(nodes []Target) (Locker, error) {
			clients := connectAll(nodes)
			l, err := redlatch.NewRedlock(universal(clients), redlatch.WithTTL(TTL))
			return &redlatchLocker{l, clients}, err
		},
	}
}

// SetNXPX is Redlatch, by the name that it has beside Semaphore.
func SetNXPX() Peer {
	p := Redlatch()
	p.Name = "NewSetNXPX"
	return p
}

// WithoutQueue is this library with waiters that poll.
func WithoutQueue() Peer {
	return Peer{
		Name:   "WithoutQueue",
		Direct: scripts,
		Open: func(target Target) (Locker, error) {
			return openRedlatch(target, func(c redis.UniversalClient) (redlatch.Locker, error) {
				return redlatch.NewSetNXPX(c, redlatch.WithTTL(TTL), redlatch.WithoutQueue())
			})
		},
	}
}

// Semaphore is this library's semaphore, with that limit.
func Semaphore(limit int) Peer {
	return Peer{
		Name:   "NewSemaphore",
		Direct: scripts,
		Open: func(target Target) (Locker, error) {
			return openRedlatch(target, func(c redis.UniversalClient) (redlatch.Locker, error) {
				return redlatch.NewSemaphore(c, limit, redlatch.WithTTL(TTL))
			})
		},
	}
}

// ReadWrite is this library's read-write lock, with so many in a hundred locks to write.
func ReadWrite(writes int) Peer {
	return Peer{
		Name:   "NewReadWrite",
		Direct: scripts,
		Open: func(target Target) (Locker, error) {
			c, err := connect(target)
			if err != nil {
				return nil, err
			}
			read, write, err := redlatch.NewReadWrite(c.UniversalClient, redlatch.WithTTL(TTL))
			return &readWriteLocker{redlatchLocker{read, []client{c}}, redlatchLocker{locker: write}, writes}, err
		},
	}
}

// A readWriteLocker locks to read or to write, at random.
type readWriteLocker struct {
	redlatchLocker
	writer redlatchLocker
	writes int // in a hundred
}

func (l *readWriteLocker) Lock(ctx context.Context, key string) (Lock, error) {
	if rand.IntN(100) < l.writes {
		return l.writer.Lock(ctx, key)
	}
	return l.redlatchLocker.Lock(ctx, key)
}

// openRedlatch connects to target, and calls on to make the Locker.
func openRedlatch(target Target, on func(redis.UniversalClient) (redlatch.Locker, error)) (Locker, error) {
	c, err := connect(target)
	if err != nil {
		return nil, err
	}
	l, err := on(c.UniversalClient)
	return &redlatchLocker{l, []client{c}}, err
}

type redlatchLocker struct {
	locker  redlatch.Locker
	clients []client
}

func (l *redlatchLocker) Lock(ctx context.Context, key string) (Lock, error) {
	lock, err := l.locker.Lock(ctx, key)
	if err != nil {
		return nil, err
	}
	return redlatchLock{lock}, nil
}

func (l *redlatchLocker) Close() error { return closeAll(l.clients) }

type redlatchLock struct{ *redlatch.Lock }

func (k redlatchLock) Held() bool { return k.Err() == nil }

// connectAll connects to each node with go-redis' default options, whose timeouts show where a
// node hangs.
func connectAll(nodes []Target) []client {
	var clients []client
	for _, node := range nodes {
		plain := redis.NewClient(node.options())
		clients = append(clients, client{plain, plain})
	}
	return clients
}

func universal(clients []client) []redis.UniversalClient {
	var all []redis.UniversalClient
	for _, c := range clients {
		all = append(all, c.UniversalClient)
	}
	return all
}

func closeAll(clients []client) error {
	var errs []error
	for _, c := range clients {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}
