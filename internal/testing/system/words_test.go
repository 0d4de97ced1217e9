package system_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/locktest"
	"github.com/redlatch/redlatch/internal/testing/redistest"
)

// TestSentinelsThatAreDownAreAnOutage: go-redis then fails with a text of several lines, which
// matches that of a ctx. The error of redlatch is one of Redis, on one line, and calls wait for the
// op timeout.
func TestSentinelsThatAreDownAreAnOutage(t *testing.T) {
	t.Parallel()
	l, err := redlatch.NewSetNXPX(locktest.Closing(t, redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: "main", SentinelAddrs: []string{"127.0.0.1:1", "127.0.0.1:2"}, MaxRetries: -1, PoolSize: 1,
		DialTimeout: 50 * time.Millisecond, // it ends between two dials of a Sentinel
	})), redlatch.WithOpTimeout(500*time.Millisecond))
	require.NoError(t, err)
	locktest.Eventually(t, "the error names the Sentinels", func() bool {
		began := time.Now()
		_, err := l.TryLock(t.Context(), "k")
		require.ErrorIs(t, err, redlatch.ErrUnavailable)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, context.Canceled)
		require.NotContains(t, err.Error(), "\n")
		require.GreaterOrEqual(t, time.Since(began), 450*time.Millisecond, "it is retried")
		return strings.Contains(err.Error(), "sentinels")
	})
}

// TestWaitThatADemotionInterruptsIsAnOutage: Redis answers UNBLOCKED to the WAIT of a grant. That
// is not a server without WAIT.
func TestWaitThatADemotionInterruptsIsAnOutage(t *testing.T) {
	t.Parallel()
	s := redistest.StartTCP(t)
	admin := s.Client(t)
	l, err := redlatch.NewSetNXPX(s.Client(t), locktest.Patience)
	require.NoError(t, err)
	_, err = l.TryLock(t.Context(), "warm", redlatch.WithReplicas(1, time.Millisecond)) // it learns the time of Redis
	require.ErrorIs(t, err, redlatch.ErrNotReplicated)
	failed := make(chan error, 1)
	go func() { // ends with the call
		_, err := l.TryLock(t.Context(), "k", redlatch.WithReplicas(1, 2*time.Second))
		failed <- err
	}()
	locktest.Eventually(t, "it waits for replicas", func() bool {
		return strings.Contains(admin.Info(t.Context(), "clients").Val(), "blocked_clients:1")
	})
	require.NoError(t, admin.ReplicaOf(t.Context(), "127.0.0.1", "1").Err())
	err = <-failed
	require.ErrorIs(t, err, redlatch.ErrUnavailable)
	require.NotErrorIs(t, err, errors.ErrUnsupported)
	require.NoError(t, admin.ReplicaOf(t.Context(), "no", "one").Err())
	locktest.Eventually(t, "what it has left is gone", func() bool { return admin.Exists(t.Context(), "k").Val() == 0 })
}
