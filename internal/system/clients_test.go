package system_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// A connector returns a client of its own, as another process would have.
type connector func(t *testing.T) redis.UniversalClient

// pipelined returns how to connect with AutoPipeline.
func (connect connector) pipelined() connector {
	return func(t *testing.T) redis.UniversalClient {
		client, err := connect(t).AutoPipeline()
		require.NoError(t, err)
		return client
	}
}

// deferred returns how to connect with AsyncAutoPipeline, whose commands return before they are
// carried out, in no order.
func (connect connector) deferred() connector {
	return func(t *testing.T) redis.UniversalClient {
		client, err := connect(t).AsyncAutoPipelineWithOptions(&redis.AutoPipelineOptions{
			NumShards: 2, MaxConcurrentBatches: 2, Unordered: true,
		})
		require.NoError(t, err)
		return client
	}
}

// TestDeferredPipelinesAreServed: every strategy works with a client whose commands return before
// they are carried out, on a server that knows no script yet.
func TestDeferredPipelinesAreServed(t *testing.T) {
	s := redistest.Start(t)
	connect := connector(func(t *testing.T) redis.UniversalClient { return s.Client(t) }).deferred()
	connect.serves(t, []string{"k"})
	for _, strategy := range overOneClient {
		t.Run(strategy.name+", commands that fail", func(t *testing.T) {
			require.NoError(t, s.Client(t).LPush(t.Context(), "list", "theirs").Err())
			l, err := strategy.make(connect(t), []redis.UniversalClient{redistest.Start(t).Client(t)})
			require.NoError(t, err)
			_, err = l.TryLock(t.Context(), "list")
			require.ErrorContains(t, err, "WRONGTYPE")
		})
	}
}

// overOneClient are the strategies as they use one client.
var overOneClient = []struct {
	name   string
	fences bool
	make   func(client redis.UniversalClient, others []redis.UniversalClient, opts ...redlatch.Option) (redlatch.Locker, error)
}{
	{"SetNXPX", true, func(client redis.UniversalClient, _ []redis.UniversalClient, opts ...redlatch.Option) (redlatch.Locker, error) {
		return redlatch.NewSetNXPX(client, opts...)
	}},
	{"LegacySetNX", false, func(client redis.UniversalClient, _ []redis.UniversalClient, opts ...redlatch.Option) (redlatch.Locker, error) {
		return redlatch.NewLegacySetNX(client, opts...)
	}},
	{"Semaphore", true, func(client redis.UniversalClient, _ []redis.UniversalClient, opts ...redlatch.Option) (redlatch.Locker, error) {
		return redlatch.NewSemaphore(client, 1, opts...)
	}},
	{"one node of Redlock", true, func(client redis.UniversalClient, others []redis.UniversalClient, opts ...redlatch.Option) (redlatch.Locker, error) {
		return redlatch.NewRedlock(append(others[:1:1], client), opts...) // both have to grant
	}},
}

// serves runs every strategy over one kind of client, on keys that lie on all of its servers.
func (connect connector) serves(t *testing.T, keys []string) {
	other := redistest.Start(t)
	for _, strategy := range overOneClient {
		t.Run(strategy.name, func(t *testing.T) {
			locker := func(opts ...redlatch.Option) redlatch.Locker {
				opts = append([]redlatch.Option{locktest.Patience}, opts...)
				l, err := strategy.make(connect(t), []redis.UniversalClient{other.Client(t)}, opts...)
				require.NoError(t, err)
				return l
			}
			waiting := make(chan redlatch.Event, len(keys))
			holder, next := locker(), locker(redlatch.WithHooks(redlatch.Hooks{Waiting: func(e redlatch.Event) { waiting <- e }}))
			for _, key := range keys {
				key = strategy.name + key
				lock := locktest.MustLock(t, holder, key)
				require.Equal(t, strategy.fences, lock.Fence() > 0)
				_, err := next.TryLock(t.Context(), key)
				require.ErrorIs(t, err, redlatch.ErrNotAcquired, key)
				require.NoError(t, lock.Extend(t.Context(), time.Minute))
				st, err := next.Inspect(t.Context(), key)
				require.NoError(t, err)
				require.Equal(t, lock.Token(), st.Token)
				require.Greater(t, st.TTL, 50*time.Second)

				adopted, err := next.Adopt(t.Context(), key, lock.Token())
				require.NoError(t, err)
				if strategy.fences {
					require.Greater(t, adopted.Fence(), lock.Fence())
				}

				got := make(chan *redlatch.Lock, 1)
				go func() { // ends with the lock, or with the test
					lock, err := next.Lock(t.Context(), key)
					if err != nil {
						t.Error(err)
					}
					got <- lock
				}()
				<-waiting
				released := time.Now()
				require.NoError(t, adopted.Unlock(t.Context()))
				require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrLost)
				second := <-got
				require.NotNil(t, second)
				require.Less(t, time.Since(released), 3*time.Second)
				if strategy.fences {
					require.Greater(t, second.Fence(), adopted.Fence())
				}
				require.NoError(t, second.Unlock(t.Context()))
				require.NoError(t, locktest.MustLock(t, holder, key).Unlock(t.Context()))
			}
		})
	}
}

// spread returns keys such that each of two or three servers has some of them.
func spread() (keys []string) {
	for i := range 6 {
		keys = append(keys, fmt.Sprintf("{%d}k", i))
	}
	return keys
}
