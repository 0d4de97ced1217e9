// Package locktest has the common parts of the external tests of the root, of
// internal/testing/behavior and of internal/field: Lockers for a busy machine, waits with
// a deadline, and servers.
package locktest

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/redistest"
)

// Patience is the op timeout for replies that will come, however busy the machine. Briefly is the
// op timeout for replies that will not come. Both are below go-redis' own timeout of 5 s. From 5 s
// on, the client itself would bound its commands, and redlatch would send them in another way.
var (
	Patience = redlatch.WithOpTimeout(4 * time.Second)
	Briefly  = redlatch.WithOpTimeout(time.Second)
)

// LongTTL is for tests of clean-up: a key with it does not expire while a test waits.
var LongTTL = redlatch.WithTTL(time.Hour)

// BriefTTL is the TTL of locks whose renewal a test waits for. A busy machine delays a renewal by
// less than two thirds of it.
const BriefTTL = 6 * time.Second

// Strategies make a Locker of each strategy on one server. A semaphore has one permit.
var Strategies = map[string]func(redis.UniversalClient, ...redlatch.Option) (redlatch.Locker, error){
	"SetNXPX":     redlatch.NewSetNXPX,
	"LegacySetNX": redlatch.NewLegacySetNX,
	"Semaphore": func(c redis.UniversalClient, opts ...redlatch.Option) (redlatch.Locker, error) {
		return redlatch.NewSemaphore(c, 1, opts...)
	},
	"Write": func(c redis.UniversalClient, opts ...redlatch.Option) (redlatch.Locker, error) {
		_, write, err := redlatch.NewReadWrite(c, opts...)
		return write, err
	},
	"Redlock": func(c redis.UniversalClient, opts ...redlatch.Option) (redlatch.Locker, error) {
		return redlatch.NewRedlock([]redis.UniversalClient{c}, opts...)
	},
}

// must returns a Locker that was made without an error.
func must(t *testing.T, l redlatch.Locker, err error) redlatch.Locker {
	t.Helper()
	require.NoError(t, err)
	return l
}

// patiently puts Patience before other options.
func patiently(opts []redlatch.Option) []redlatch.Option {
	return append([]redlatch.Option{Patience}, opts...)
}

// SetNXPX returns a Locker of that strategy, for a busy machine.
func SetNXPX(t *testing.T, client redis.UniversalClient, opts ...redlatch.Option) redlatch.Locker {
	l, err := redlatch.NewSetNXPX(client, patiently(opts)...)
	return must(t, l, err)
}

// Semaphore is like [SetNXPX].
func Semaphore(t *testing.T, client redis.UniversalClient, limit int, opts ...redlatch.Option) redlatch.Locker {
	l, err := redlatch.NewSemaphore(client, limit, patiently(opts)...)
	return must(t, l, err)
}

// ReadWrite is like [SetNXPX], for readers and writers.
func ReadWrite(t *testing.T, client redis.UniversalClient, opts ...redlatch.Option) (read, write redlatch.Locker) {
	read, write, err := redlatch.NewReadWrite(client, patiently(opts)...)
	require.NoError(t, err)
	return read, write
}

// LegacySetNX is like [SetNXPX] with locks that are not renewed.
func LegacySetNX(t *testing.T, client redis.UniversalClient, opts ...redlatch.Option) redlatch.Locker {
	l, err := redlatch.NewLegacySetNX(client, append(patiently(opts), redlatch.WithoutRenewal())...)
	return must(t, l, err)
}

// Redlock is like [SetNXPX].
func Redlock(t *testing.T, clients []*redis.Client, opts ...redlatch.Option) redlatch.Locker {
	var nodes []redis.UniversalClient
	for _, c := range clients {
		nodes = append(nodes, c)
	}
	l, err := redlatch.NewRedlock(nodes, patiently(opts)...)
	return must(t, l, err)
}

// Eventually waits until f is true, with a deadline that only a failure reaches.
func Eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !f(); <-time.After(2 * time.Millisecond) {
		require.True(t, time.Now().Before(deadline), "waited without success: %s", what)
	}
}

// MustLock locks key, which must be free.
func MustLock(t *testing.T, l redlatch.Locker, key string, opts ...redlatch.Option) *redlatch.Lock {
	t.Helper()
	lock, err := l.TryLock(t.Context(), key, opts...)
	require.NoError(t, err)
	return lock
}

// LockSoon locks key with a short op timeout, which a busy machine may exceed at first.
func LockSoon(t *testing.T, l redlatch.Locker, key string, opts ...redlatch.Option) (lock *redlatch.Lock) {
	t.Helper()
	Eventually(t, "locked", func() bool {
		var err error
		lock, err = l.TryLock(t.Context(), key, opts...)
		return err == nil
	})
	return lock
}

// WaitInVain waits for key, which another owner has, until ctx ends, and returns the error. On a
// busy machine Redis may not have answered by then, so it retries with longer waits until it has.
func WaitInVain(t *testing.T, l redlatch.Locker, key string) error {
	t.Helper()
	for patience := 50 * time.Millisecond; ; patience *= 3 {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		_, err := l.Lock(ctx, key)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		held := errors.As(err, new(*redlatch.HeldError)) || errors.As(err, new(*redlatch.QuorumError))
		if held && errors.Is(err, redlatch.ErrNotAcquired) || patience > 10*time.Second {
			return err
		}
	}
}

// Count returns a hook that adds each command of a client to n.
func Count(n *atomic.Int64) redis.Hook {
	return redistest.OnProcess(func(next redis.ProcessHook) redis.ProcessHook {
		return func(ctx context.Context, cmd redis.Cmder) error {
			n.Add(1)
			return next(ctx, cmd)
		}
	})
}

// IgnoreNil returns err, or nil if err says that a key does not exist.
func IgnoreNil(err error) error {
	if errors.Is(err, redis.Nil) {
		return nil
	}
	return err
}
