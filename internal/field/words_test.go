package field_test

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

// TestFirstErrorSaysWhy: what is not an answer of Redis is an outage, whose error says what to do.
func TestFirstErrorSaysWhy(t *testing.T) {
	t.Parallel()
	for text, start := range map[string]func(t *testing.T) redis.UniversalClient{
		"(no Sentinel knows a primary of this name: check MasterName)": func(t *testing.T) redis.UniversalClient {
			primary := redistest.StartTCP(t)
			redistest.StartReplica(t, primary)
			o := &redis.FailoverOptions{MasterName: "wrong"}
			for _, s := range redistest.StartSentinels(t, "main", primary) {
				o.SentinelAddrs = append(o.SentinelAddrs, s.Addr())
			}
			return redis.NewFailoverClient(o)
		},
		"(the Sentinels may be down)": func(*testing.T) redis.UniversalClient {
			return redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "main", SentinelAddrs: []string{"127.0.0.1:1", "127.0.0.1:2"}})
		},
		"(the Cluster does not tell the addresses of its servers: set its cluster-preferred-endpoint-type to ip or hostname)": func(t *testing.T) redis.UniversalClient {
			masters := redistest.StartCluster(t)
			for _, s := range masters {
				if err := s.Client(t).ConfigSet(t.Context(), "cluster-preferred-endpoint-type", "unknown-endpoint").Err(); err != nil {
					t.Skip(err) // before Redis 7.0
				}
			}
			return redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{masters[0].Addr()}})
		},
		"(all connections of the client are in use: raise its PoolSize)": func(t *testing.T) redis.UniversalClient {
			s := redistest.Start(t)
			o := s.Options()
			o.PoolSize, o.ReadTimeout = 2, time.Hour
			client := redis.NewClient(o)
			for range o.PoolSize {
				go client.BLPop(t.Context(), 0, "nothing") // ends with the client
			}
			locktest.Eventually(t, "they wait", func() bool {
				return strings.Contains(s.Client(t).Info(t.Context(), "clients").Val(), "blocked_clients:2")
			})
			return client
		},
		"(this server is a replica: connect the client to the primary)": func(t *testing.T) redis.UniversalClient {
			return redistest.StartReplica(t, redistest.StartTCP(t)).Client(t)
		},
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			locktest.Eventually(t, text, func() bool { // a busy machine may have no time to find it out
				client := start(t)
				t.Cleanup(func() { _ = client.Close() })
				l, err := redlatch.NewSetNXPX(client, redlatch.WithReplicas(1, 100*time.Millisecond))
				require.NoError(t, err)
				_, err = l.TryLock(t.Context(), "k")
				require.ErrorIs(t, err, redlatch.ErrUnavailable)
				require.NotErrorIs(t, err, context.Canceled)
				require.NotErrorIs(t, err, redis.Nil)
				return strings.Contains(err.Error(), text)
			})
		})
	}
}
