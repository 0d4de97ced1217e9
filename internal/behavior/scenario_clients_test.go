package behavior_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
)

// Types that a program may define around a client.
type (
	ownRing      struct{ *redis.Ring }
	ownCluster   struct{ *redis.ClusterClient }
	ownUniversal struct{ redis.UniversalClient }
)

// TestRingBehindAnotherTypeIsARing: the channels and the keys of a Ring are on different servers. So its
// waiters poll and do not queue, also if another type wraps the Ring.
func TestRingBehindAnotherTypeIsARing(t *testing.T) {
	t.Parallel()
	shards := map[string]string{"a": redistest.StartTCP(t).Addr(), "b": redistest.StartTCP(t).Addr()}
	connect := func() *redis.Ring {
		ring := redis.NewRing(&redis.RingOptions{Addrs: shards})
		t.Cleanup(func() { _ = ring.Close() })
		return ring
	}
	for name, wrap := range map[string]func(*redis.Ring) redis.UniversalClient{
		"as it is":            func(r *redis.Ring) redis.UniversalClient { return r },
		"embedded":            func(r *redis.Ring) redis.UniversalClient { return ownRing{r} },
		"pointer to a struct": func(r *redis.Ring) redis.UniversalClient { return &ownRing{r} },
		"embedded twice":      func(r *redis.Ring) redis.UniversalClient { return struct{ *ownRing }{&ownRing{r}} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ring := connect()
			l, next := newLocker(t, wrap(connect())), newLocker(t, wrap(ring))
			sent := commandsOf(ring)
			for i := range 4 { // on both shards
				key := fmt.Sprint(name, i)
				lock := mustLock(t, l, key)
				before := sent.Load()
				got := make(chan *redlatch.Lock, 1)
				go func() { // ends with the lock
					lock, err := next.Lock(context.Background(), key)
					if err != nil {
						t.Error(err)
					}
					got <- lock
				}()
				eventually(t, "the waiter polls", func() bool { return sent.Load() >= before+3 })
				st, err := l.Inspect(t.Context(), key)
				require.NoError(t, err)
				require.Zero(t, st.Waiters)
				require.NoError(t, lock.Unlock(t.Context()))
				lock = <-got
				require.NotNil(t, lock)
				require.NoError(t, lock.Unlock(t.Context()))
			}
		})
	}
}

// TestClusterBehindAnotherTypeRefusesKeysWithoutRoom: a wrapped cluster client also refuses a key that has no
// room for its companions. Tests with a running cluster are in internal/system.
func TestClusterBehindAnotherTypeRefusesKeysWithoutRoom(t *testing.T) {
	t.Parallel()
	nobody := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	t.Cleanup(func() { _ = nobody.Close() })
	for name, client := range map[string]redis.UniversalClient{
		"as it is":            nobody,
		"embedded":            ownCluster{nobody},
		"pointer to a struct": &ownCluster{nobody},
		"embedded twice":      struct{ *ownCluster }{&ownCluster{nobody}},
	} {
		for _, locker := range []func() (redlatch.Locker, error){
			func() (redlatch.Locker, error) { return redlatch.NewSetNXPX(client) },
			func() (redlatch.Locker, error) { return redlatch.NewLegacySetNX(client) },
			func() (redlatch.Locker, error) { return redlatch.NewRedlock([]redis.UniversalClient{client}) },
		} {
			l, err := locker()
			require.NoError(t, err)
			_, err = l.TryLock(t.Context(), "a}b")
			require.ErrorIs(t, err, redlatch.ErrInvalidOption, name)
		}
	}
}

// TestSingleServerBehindAnotherTypeQueues: waiters of a wrapped client are handed the lock, as with the client
// itself.
func TestSingleServerBehindAnotherTypeQueues(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	for name, wrapped := range map[string]redis.UniversalClient{
		"as it is":              client,
		"embedded":              struct{ *redis.Client }{client},
		"embedded as interface": ownUniversal{client},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLocker(t, wrapped)
			lock := mustLock(t, l, name)
			got := waitInLine(t, l, name)
			require.NoError(t, lock.Unlock(t.Context()))
			next := <-got
			require.NotNil(t, next)
			require.Greater(t, next.Fence(), lock.Fence())
			require.NoError(t, next.Unlock(t.Context()))
		})
	}
}
