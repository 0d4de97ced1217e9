package benchmarks_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/redistest"
)

// quorum is five nodes that redsync and NewRedlock share.
type quorum struct {
	nodes   []*redis.Client // for the test to look at
	ours    redlatch.Locker
	another redlatch.Locker // as in another process
	their   *redsync.Redsync
}

func newQuorum(t *testing.T) quorum {
	t.Helper()
	var q quorum
	var clients []redis.UniversalClient
	var pools []redsyncredis.Pool
	for range 5 {
		server := redistest.Start(t)
		q.nodes = append(q.nodes, server.Client(t))
		clients = append(clients, server.Client(t))
		pools = append(pools, goredis.NewPool(server.Client(t)))
	}
	var err error
	q.ours, err = redlatch.NewRedlock(clients)
	require.NoError(t, err)
	q.another, err = redlatch.NewRedlock(clients)
	require.NoError(t, err)
	q.their = redsync.New(pools...)
	return q
}

// holders returns how many nodes hold value at key.
func (q quorum) holders(t *testing.T, key, value string) (n int) {
	t.Helper()
	for _, node := range q.nodes {
		if node.Get(t.Context(), key).Val() == value {
			n++
		}
	}
	return n
}

// del deletes key on all nodes.
func (q quorum) del(t *testing.T, key string) {
	t.Helper()
	for _, node := range q.nodes {
		require.NoError(t, node.Del(t.Context(), key).Err())
	}
}

func TestRedlockAndRedsyncExcludeEachOtherOnAQuorum(t *testing.T) {
	q := newQuorum(t)
	const key = "orders:42"
	mutex := q.their.NewMutex(key)
	require.NoError(t, mutex.TryLock())
	_, err := q.ours.TryLock(t.Context(), key)
	require.ErrorIs(t, err, redlatch.ErrNotAcquired)
	require.Equal(t, 5, q.holders(t, key, mutex.Value()))
	ok, err := mutex.Unlock()
	require.True(t, ok, "%v", err)

	lock, err := q.ours.TryLock(t.Context(), key)
	require.NoError(t, err)
	err = q.their.NewMutex(key).TryLock()
	var taken *redsync.ErrTaken
	require.True(t, errors.As(err, &taken), "%v", err)
	require.GreaterOrEqual(t, q.holders(t, key, string(lock.Token())), 3)
	require.NoError(t, lock.Err())
	require.NoError(t, lock.Unlock(t.Context()))

	require.Eventually(t, func() bool { // the nodes that the release did not wait for
		return q.their.NewMutex(key).TryLock() == nil
	}, time.Minute, time.Millisecond)
}

func TestNeitherOfRedlockAndRedsyncDeletesTheLockOfTheOther(t *testing.T) {
	q := newQuorum(t)
	const key = "orders:42"
	lock, err := q.ours.TryLock(t.Context(), key, redlatch.WithoutRenewal())
	require.NoError(t, err)
	require.Eventually(t, func() bool { return q.holders(t, key, string(lock.Token())) == 5 }, time.Minute, time.Millisecond)
	q.del(t, key)
	mutex := q.their.NewMutex(key)
	require.NoError(t, mutex.TryLock())
	require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrLost)
	require.Equal(t, 5, q.holders(t, key, mutex.Value()))

	q.del(t, key)
	lock, err = q.ours.TryLock(t.Context(), key)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return q.holders(t, key, string(lock.Token())) == 5 }, time.Minute, time.Millisecond)
	ok, err := mutex.Unlock()
	require.False(t, ok)
	require.Error(t, err)
	require.Equal(t, 5, q.holders(t, key, string(lock.Token())))
	require.NoError(t, lock.Unlock(t.Context()))
}

func TestWaitersOfRedlockAndRedsyncGetWhatTheOtherReleased(t *testing.T) {
	q := newQuorum(t)
	const key = "orders:42"
	mutex := q.their.NewMutex(key, redsync.WithExpiry(time.Minute))
	require.NoError(t, mutex.TryLock())
	waiting := make(chan struct{}, 1)
	granted := make(chan *redlatch.Lock, 1)
	// Ends when it has the lock, or with the test's ctx.
	go func() {
		defer close(granted)
		lock, err := q.ours.Lock(t.Context(), key, redlatch.WithPollInterval(10*time.Millisecond, 10*time.Millisecond),
			redlatch.WithHooks(redlatch.Hooks{Waiting: func(context.Context, redlatch.Event) { waiting <- struct{}{} }}))
		if err == nil {
			granted <- lock
		}
	}()
	<-waiting
	ok, err := mutex.Unlock()
	require.True(t, ok, "%v", err)
	lock := grantedWithin(t, granted, looksWithin+slack)

	waiting, result := make(chan struct{}, 1), make(chan error, 1)
	theirs := q.their.NewMutex(key, redsync.WithRetryDelayFunc(func(int) time.Duration {
		select {
		case waiting <- struct{}{}:
		default:
		}
		return 10 * time.Millisecond
	}), redsync.WithTries(1000))
	// Ends when it has the lock, or after some ten seconds.
	go func() { result <- theirs.Lock() }()
	<-waiting
	require.NoError(t, lock.Unlock(t.Context()))
	require.NoError(t, <-result)
	ok, err = theirs.Unlock()
	require.True(t, ok, "%v", err)
}

// contend has two processes of each library lock a key for some time. A hold lasts 10 ms. It returns the grants of each.
func (q quorum) contend(t *testing.T, during time.Duration, opts ...redlatch.Option) (ours, theirs int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), during)
	defer cancel()
	var our, their atomic.Int64
	var wg sync.WaitGroup
	hold := func() { time.Sleep(10 * time.Millisecond) }
	for _, l := range []redlatch.Locker{q.ours, q.another} {
		wg.Go(func() {
			for ctx.Err() == nil {
				if lock, err := l.Lock(ctx, "orders:42", opts...); err == nil {
					our.Add(1)
					hold()
					_ = lock.Unlock(t.Context())
				}
			}
		})
		wg.Go(func() {
			for ctx.Err() == nil {
				mutex := q.their.NewMutex("orders:42", redsync.WithTries(1000)) // 50 to 250 ms between tries
				if mutex.LockContext(ctx) == nil {
					their.Add(1)
					hold()
					_, _ = mutex.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return our.Load(), their.Load()
}

// TestRedlockThatPollsAsRedsyncDoesLeavesItAShare: with the default, NewRedlock asks more often, and gets more.
func TestRedlockThatPollsAsRedsyncDoesLeavesItAShare(t *testing.T) {
	q := newQuorum(t)
	ours, theirs := q.contend(t, 5*time.Second)
	t.Logf("by default: %d grants of ours, %d of theirs", ours, theirs)
	defaults := float64(theirs) / float64(ours+theirs)
	ours, theirs = q.contend(t, 5*time.Second, redlatch.WithPollInterval(50*time.Millisecond, 250*time.Millisecond))
	t.Logf("with their intervals: %d grants of ours, %d of theirs", ours, theirs)
	alike := float64(theirs) / float64(ours+theirs)
	require.Greater(t, alike, defaults)
	require.Greater(t, alike, 0.4)
}
