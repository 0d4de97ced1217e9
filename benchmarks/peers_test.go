package benchmarks_test

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/redistest"
)

// peer is another library that keeps a lock as redlatch does: one key by SET NX PX, whose value is
// compared before it is deleted. Values are plain strings, of any form.
type peer struct {
	name string
	// take makes one attempt, or waits. taken reports whether its error says that another owner has
	// the lock.
	take  func(ctx context.Context, client *redis.Client, key string, ttl time.Duration, wait bool) (held, error)
	taken func(error) bool
}

// held is a lock of a peer.
type held struct {
	value string // what it wrote
	give  func(ctx context.Context) error
}

var peers = []peer{
	{"redsync", func(ctx context.Context, client *redis.Client, key string, ttl time.Duration, wait bool) (held, error) {
		m := redsync.New(goredis.NewPool(client)).NewMutex(key, redsync.WithExpiry(ttl), redsync.WithTries(math.MaxInt))
		lock := m.TryLockContext
		if wait {
			lock = m.LockContext
		}
		err := lock(ctx)
		return held{m.Value(), func(ctx context.Context) error {
			ok, err := m.UnlockContext(ctx)
			if !ok && err == nil {
				err = errors.New("not unlocked")
			}
			return err
		}}, err
	}, func(err error) bool {
		var taken *redsync.ErrTaken
		return errors.As(err, &taken)
	}},
	{"redislock", takeRedislock(""), refusedByRedislock},
	{"redislock with metadata", takeRedislock("for the nightly job"), refusedByRedislock},
}

func takeRedislock(metadata string) func(context.Context, *redis.Client, string, time.Duration, bool) (held, error) {
	return func(ctx context.Context, client *redis.Client, key string, ttl time.Duration, wait bool) (held, error) {
		opts := &redislock.Options{Metadata: metadata}
		if wait {
			opts.RetryStrategy = redislock.LinearBackoff(20 * time.Millisecond)
		}
		lock, err := redislock.New(client).Obtain(ctx, key, ttl, opts)
		if err != nil {
			return held{}, err
		}
		return held{lock.Token() + lock.Metadata(), lock.Release}, nil
	}
}

func refusedByRedislock(err error) bool { return errors.Is(err, redislock.ErrNotObtained) }

// scene is one key that a peer and redlatch want.
type scene struct {
	peer
	client *redis.Client // of the peer
	admin  *redis.Client
	ours   redlatch.Locker
	key    string
}

// eachPeer runs a test for every peer.
func eachPeer(t *testing.T, test func(t *testing.T, s scene)) {
	for _, p := range peers {
		t.Run(p.name, func(t *testing.T) {
			server := redistest.Shared(t)
			ours, err := redlatch.NewSetNXPX(server.Client(t))
			require.NoError(t, err)
			test(t, scene{p, server.Client(t), server.Client(t), ours, "interop:" + t.Name()})
		})
	}
}

// mustTake has the peer take the key, which must be free.
func (s scene) mustTake(t *testing.T, ttl time.Duration) held {
	t.Helper()
	h, err := s.take(t.Context(), s.client, s.key, ttl, false)
	require.NoError(t, err)
	require.Equal(t, h.value, s.value(t))
	return h
}

// value returns what the key holds.
func (s scene) value(t *testing.T) string {
	t.Helper()
	return s.admin.Get(t.Context(), s.key).Val()
}

// requireRefused has the peer try and fail.
func (s scene) requireRefused(t *testing.T) {
	t.Helper()
	_, err := s.take(t.Context(), s.client, s.key, time.Minute, false)
	require.Error(t, err)
	require.True(t, s.taken(err), "%v", err)
}

// A peer announces no release, so our waiter looks about once a second.
const looksWithin = 1300 * time.Millisecond

// slack is for a machine that is busy. With it, a wait is still shorter than the TTL of the peer's lock, a
// minute, which would end it too.
const slack = 20 * time.Second

// wait starts a waiter of ours and returns when Redis knows of it.
func (s scene) wait(t *testing.T) (granted <-chan *redlatch.Lock) {
	t.Helper()
	locks := make(chan *redlatch.Lock, 1)
	// Ends when it has the lock, or with the test's ctx.
	go func() {
		defer close(locks)
		if lock, err := s.ours.Lock(t.Context(), s.key); err == nil {
			locks <- lock
		}
	}()
	require.Eventually(t, func() bool {
		status, err := s.ours.Inspect(t.Context(), s.key)
		return err == nil && status.Waiters == 1
	}, time.Minute, time.Millisecond)
	return locks
}

// grantedWithin returns what the waiter was granted.
func grantedWithin(t *testing.T, locks <-chan *redlatch.Lock, limit time.Duration) *redlatch.Lock {
	t.Helper()
	select {
	case lock := <-locks:
		require.NotNil(t, lock)
		return lock
	case <-time.After(limit):
		require.FailNow(t, "not granted", "within %v", limit)
		return nil
	}
}

// counter counts the commands that have been answered.
type counter struct{ n atomic.Int64 }

func (c *counter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		defer c.n.Add(1)
		return next(ctx, cmd)
	}
}

func (c *counter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
