package behavior_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/faultproxy"
	"github.com/redlatch/redlatch/internal/redistest"
)

// gone waits until key is not there.
func gone(t *testing.T, direct *redis.Client, key string) {
	t.Helper()
	eventually(t, key+" is gone", func() bool { return direct.Exists(t.Context(), key).Val() == 0 })
}

// TestLostReplyIsNotLostOwnership: a command whose reply is lost succeeds as if the reply had
// arrived, whether or not go-redis itself retries commands.
func TestLostReplyIsNotLostOwnership(t *testing.T) {
	for _, retries := range []int{0, -1} { // the default of go-redis, and no retries
		t.Run(fmt.Sprintf("MaxRetries %d", retries), func(t *testing.T) {
			direct, p, _ := behindProxy(t)
			o := p.Options()
			o.MaxRetries = retries
			client := redis.NewClient(o)
			t.Cleanup(func() { _ = client.Close() })
			l := newLocker(t, client)
			warm := mustLock(t, l, "warm") // the scripts are loaded
			require.NoError(t, warm.Extend(t.Context(), time.Second))
			require.NoError(t, warm.Unlock(t.Context()))

			p.LoseReplies(1, "evalsha")
			lock, err := l.TryLock(t.Context(), "k")
			require.NoError(t, err)
			require.Equal(t, 1, p.Lost())
			require.Equal(t, lock.Token(), direct.Get(t.Context(), "k").Val())

			p.LoseReplies(1, "evalsha")
			require.NoError(t, lock.Extend(t.Context(), time.Hour))
			require.Equal(t, 2, p.Lost())

			p.LoseReplies(1, "evalsha")
			require.NoError(t, lock.Unlock(t.Context()))
			require.Equal(t, 3, p.Lost())
			require.Zero(t, direct.Exists(t.Context(), "k").Val())
		})
	}
}

// TestUnknownOutcomeLeavesNoKey: when every reply is lost, the attempt fails, and the key that it acquired
// is released.
func TestUnknownOutcomeLeavesNoKey(t *testing.T) {
	t.Parallel()
	onQueues(t, testUnknownOutcomeLeavesNoKey)
}

func testUnknownOutcomeLeavesNoKey(t *testing.T, newLocker newLockerFunc) {
	t.Parallel()
	direct, p, client := behindProxy(t)
	l := newLocker(t, client, longTTL)
	require.NoError(t, mustLock(t, l, "warm").Unlock(t.Context()))
	before := lastFence(t, direct)
	p.LoseReplies(1000, "evalsha")
	_, err := l.TryLock(t.Context(), "k", briefly)
	require.Error(t, err)
	require.NotErrorIs(t, err, redlatch.ErrNotAcquired)
	require.Positive(t, p.Lost())
	require.Greater(t, lastFence(t, direct), before, "the attempt was carried out")
	gone(t, direct, "k")
}

// TestLateAcquireDoesNotTakeTheLock: if Redis receives an acquire only after its attempt has ended, a
// release follows.
func TestLateAcquireDoesNotTakeTheLock(t *testing.T) {
	t.Parallel()
	direct, p, client := behindProxy(t)
	l := newLocker(t, client, longTTL)
	require.NoError(t, mustLock(t, l, "warm").Unlock(t.Context()))
	sent := p.Requests()
	p.Silence()
	_, err := l.TryLock(t.Context(), "k", redlatch.WithOpTimeout(500*time.Millisecond))
	require.Error(t, err)
	require.ErrorContains(t, err, "no reply within 500ms")
	p.Heal()
	eventually(t, "the acquire, its release and a second release", func() bool { return p.Requests() >= sent+3 })
	gone(t, direct, "k")
}

// TestUnlockThatNeverLeftFindsTheLockLost: if the retry of a release finds nothing, Unlock succeeds only if
// the first send may have been carried out. Here the first send cannot connect.
func TestUnlockThatNeverLeftFindsTheLockLost(t *testing.T) {
	onQueues(t, testUnlockThatNeverLeftFindsTheLockLost)
}

func testUnlockThatNeverLeftFindsTheLockLost(t *testing.T, newLocker newLockerFunc) {
	s := redistest.Start(t)
	var failing atomic.Int64
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		if failing.Add(-1) >= 0 {
			return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("no route")}
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	o := s.Options()
	o.Dialer, o.DialerRetries, o.PoolSize = dial, 1, 1
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	direct := s.Client(t)

	lock := mustLock(t, newLocker(t, client, redlatch.WithoutRenewal()), "k")
	require.NoError(t, direct.Del(t.Context(), "k").Err())
	require.NoError(t, direct.ClientKillByFilter(t.Context(), "TYPE", "normal", "SKIPME", "yes").Err())
	failing.Store(1)
	require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrLost)
	require.Negative(t, failing.Load(), "the first dial failed")
}

// TestAttemptThatMayHaveBeenSentIsReleased: the reply to an acquire is lost, and its resend cannot connect.
func TestAttemptThatMayHaveBeenSentIsReleased(t *testing.T) {
	t.Parallel()
	onQueues(t, testAttemptThatWasPerhapsSentIsUndone)
}

func testAttemptThatWasPerhapsSentIsUndone(t *testing.T, newLocker newLockerFunc) {
	t.Parallel()
	s := redistest.Start(t)
	p := faultproxy.New(t, s.Network(), s.Addr())
	var failing atomic.Int64
	o := p.Options()
	o.DialerRetries = 1
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if failing.Add(-1) >= 0 {
			return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("no route")}
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	l := newLocker(t, client, longTTL)
	require.NoError(t, mustLock(t, l, "warm").Unlock(t.Context()))
	p.LoseReplies(1, "evalsha")
	failing.Store(1000)
	time.AfterFunc(2200*time.Millisecond, func() { failing.Store(0) }) // the release is retried for as long as the attempt
	_, err := l.TryLock(t.Context(), "k", redlatch.WithOpTimeout(2*time.Second))
	require.ErrorContains(t, err, "no route")
	require.Equal(t, 1, p.Lost())
	gone(t, s.Client(t), "k")
}

// refusal is an error reply of Redis.
type refusal string

func (r refusal) Error() string { return string(r) }

func (refusal) RedisError() {}

// refuser answers the next commands with a refusal and does not send them.
type refuser struct{ left *atomic.Int64 }

func (r refuser) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if r.left.Add(-1) >= 0 {
			return refusal("LOADING Redis is loading the dataset in memory")
		}
		return next(ctx, cmd)
	}
}

// TestRefusedUnlockIsNoSuccess: Redis refuses the first release, and the retry finds nothing. Unlock
// returns ErrLost.
func TestRefusedUnlockIsNoSuccess(t *testing.T) { onQueues(t, testRefusedUnlockIsNoSuccess) }

func testRefusedUnlockIsNoSuccess(t *testing.T, newLocker newLockerFunc) {
	s := redistest.Start(t)
	client := s.Client(t)
	var left atomic.Int64
	client.AddHook(redistest.OnProcess(refuser{&left}.ProcessHook))
	lock := mustLock(t, newLocker(t, client, redlatch.WithoutRenewal()), "k")
	require.NoError(t, s.Client(t).Del(t.Context(), "k").Err())
	left.Store(1)
	require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrLost)
	require.Negative(t, left.Load())
}

func TestForgottenLockEndsWithItsTTL(t *testing.T) {
	t.Parallel()
	onQueues(t, testForgottenLockEndsWithItsTTL)
}

func testForgottenLockEndsWithItsTTL(t *testing.T, newLocker newLockerFunc) {
	t.Parallel()
	direct, _, client := behindProxy(t)
	lost := make(chan redlatch.Event, 1)
	mustLock(t, newLocker(t, client), "k", redlatch.WithTTL(2*time.Second), redlatch.WithHooks(redlatch.Hooks{
		Lost: func(e redlatch.Event) { lost <- e },
	}))
	eventually(t, "the key is gone", func() bool {
		runtime.GC()
		return direct.Exists(t.Context(), "k").Val() == 0
	})
	require.ErrorIs(t, (<-lost).Err, redlatch.ErrLost)
}
