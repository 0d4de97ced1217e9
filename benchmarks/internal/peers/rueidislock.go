package peers

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/redlatch/redlatch/benchmarks/internal/delay"
)

// Rueidislock is the lock of rueidis. With a majority of one it is one key of one Redis, like the
// others. Loop tracking needs Redis 7.0.5 and is off, so rueidislock is notified of fewer changes.
// Its client always pipelines.
//
// By default it gives a command 20 ms, and a lock on a free key that took longer may never be
// granted. Only for the measurement of renewal it is given a second, which does not affect renewal.
func Rueidislock() Peer { return patientRueidislock(0) }

// patientRueidislock is rueidislock that gives a command so long, or its default for 0.
func patientRueidislock(patience time.Duration) Peer {
	open := func(target Target, ttl, patience time.Duration) (rueidislock.Locker, error) {
		return rueidislock.NewLocker(rueidislock.LockerOption{
			ClientOption:   rueidisOption(target),
			KeyMajority:    1,
			KeyValidity:    ttl,
			NoLoopTracking: true,
			TryNextAfter:   patience,
		})
	}
	return Peer{
		Name:   "rueidislock",
		Direct: scripts,
		Open: func(target Target) (Locker, error) {
			l, err := open(target, TTL, patience)
			return rueidisLocker{l, false}, err
		},
		OpenRenewing: func(target Target, ttl time.Duration) (Locker, error) {
			l, err := open(target, ttl, time.Second)
			return rueidisLocker{l, true}, err
		},
	}
}

// rueidisOption returns the options of rueidis that reach the target.
func rueidisOption(target Target) rueidis.ClientOption {
	option := rueidis.ClientOption{InitAddress: []string{target.Addr}}
	if target.RoundTrip > 0 {
		dial := delay.Dial(target.RoundTrip)
		option.DialCtxFn = func(ctx context.Context, addr string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return dial(ctx, "tcp", addr)
		}
	}
	return option
}

type rueidisLocker struct {
	rueidislock.Locker
	watched bool // the locks are Renewed, which costs an allocation
}

func (l rueidisLocker) Lock(ctx context.Context, key string) (Lock, error) {
	held, release, err := l.WithContext(ctx, key)
	switch {
	case err != nil:
		return nil, err
	case l.watched:
		return watchedLock{rueidisLock(release), held}, nil
	}
	return rueidisLock(release), nil
}

func (l rueidisLocker) Close() error {
	l.Locker.Close()
	return nil
}

type rueidisLock context.CancelFunc

// Unlock returns when the key is deleted.
func (release rueidisLock) Unlock(context.Context) error {
	release()
	return nil
}

type watchedLock struct {
	rueidisLock
	held context.Context //nolint:containedctx // that package reports a loss by the end of this ctx
}

func (k watchedLock) Held() bool { return k.held.Err() == nil }
