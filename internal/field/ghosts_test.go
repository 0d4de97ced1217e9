package field_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/locktest"
	"github.com/redlatch/redlatch/internal/testing/redistest"
)

// TestReturnToOlderDataStopsNobody: what comes back would keep the key for an hour each, since locks are not renewed.
// Those who wait for the key give it back.
func TestReturnToOlderDataStopsNobody(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(t *testing.T) (connect connector, save func(t *testing.T) (restore func())){
		"a restart with an RDB": func(t *testing.T) (connector, func(*testing.T) func()) {
			s := redistest.StartTCP(t)
			return func(t *testing.T) redis.UniversalClient { return s.Client(t) }, func(t *testing.T) func() {
				require.NoError(t, s.Client(t).Save(t.Context()).Err())
				return func() { s.Restart(t) }
			}
		},
		"a replica that is behind": func(t *testing.T) (connector, func(*testing.T) func()) {
			s := redistest.StartTCP(t)
			return func(t *testing.T) redis.UniversalClient { return s.Client(t) }, func(t *testing.T) func() {
				return returning(t, s.Client(t))
			}
		},
		"a master of a Cluster": func(t *testing.T) (connector, func(*testing.T) func()) {
			masters, addrs := startCluster(t)
			return toCluster(addrs), func(t *testing.T) func() {
				cluster := redistest.NewCluster(t, &redis.ClusterOptions{Addrs: addrs})
				master, err := cluster.MasterForKey(t.Context(), "k")
				require.NoError(t, err)
				for _, m := range masters {
					if m.Options().Addr == master.Options().Addr {
						return returning(t, m)
					}
				}
				return nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			connect, save := begin(t)
			for _, made := range []func(*testing.T, redis.UniversalClient) redlatch.Locker{
				func(t *testing.T, c redis.UniversalClient) redlatch.Locker { return locktest.SetNXPX(t, c, hourly...) },
				func(t *testing.T, c redis.UniversalClient) redlatch.Locker {
					_, write := locktest.ReadWrite(t, c, append(hourly, redlatch.WithKeyPrefix("write:"))...)
					return write
				},
			} {
				more, stop := busy(t, func() redlatch.Locker { return made(t, connect(t)) })
				for range 3 {
					more()
					restore := save(t)
					more()
					restore()
				}
				more()
				stop()
			}
		})
	}
}

// TestFailoverToAReplicaThatIsBehindStopsNobody, as above. Sentinels promote it, since the primary is dead or says nothing.
func TestFailoverToAReplicaThatIsBehindStopsNobody(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*redistest.Server){"dead": (*redistest.Server).Kill, "silent": (*redistest.Server).Pause} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startReplicated(t)
			more, stop := busy(t, func() redlatch.Locker { return locktest.SetNXPX(t, r.connect(t), hourly...) })
			more()
			r.catchesUp(t)
			require.NoError(t, r.replica.Client(t).Do(t.Context(), "replicaof", "127.0.0.1", "1").Err()) // nobody is there
			more()
			end(r.primary)
			more()
			stop()
		})
	}
}

// busy has five Lockers contend for a key, for a millisecond each time. more waits for grants, and stop ends it.
func busy(t *testing.T, made func() redlatch.Locker) (more, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var grants atomic.Int64
	var callers sync.WaitGroup
	for range 5 {
		l := made()
		callers.Go(func() {
			for ctx.Err() == nil {
				lock, err := l.Lock(ctx, "k")
				if err == nil {
					grants.Add(1)
					time.Sleep(time.Millisecond)
					_ = lock.Unlock(ctx) // it may be lost
				} else if ctx.Err() == nil && !errors.Is(err, redlatch.ErrUnavailable) {
					assert.NoError(t, err)
				}
			}
		})
	}
	more = func() {
		from := grants.Load()
		locktest.Eventually(t, "grants go on", func() bool { return grants.Load() > from+50 })
	}
	return more, func() { cancel(); callers.Wait() }
}

var hourly = []redlatch.Option{redlatch.WithTTL(time.Hour), redlatch.WithoutRenewal()}

// returning returns a function that has a server return to the data that it has now, and cuts all connections.
func returning(t *testing.T, c *redis.Client) func() {
	restore := locktest.Snapshot(t, c)
	return func() {
		restore()
		for _, kind := range []string{"normal", "pubsub"} {
			require.NoError(t, c.Do(t.Context(), "client", "kill", "type", kind).Err())
		}
	}
}
