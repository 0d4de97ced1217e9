package field_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/faultproxy"
	"github.com/redlatch/redlatch/internal/testing/locktest"
	"github.com/redlatch/redlatch/internal/testing/redistest"
)

// hanging is a dialer whose connections work, and which later dials no more until the end of the
// test.
type hanging struct {
	s     *redistest.Server
	hangs atomic.Bool
	ends  chan struct{}
}

func (h *hanging) dial(context.Context, string, string) (net.Conn, error) {
	if h.hangs.Load() {
		<-h.ends
	}
	return net.Dial(h.s.Network(), h.s.Addr())
}

// client returns a client that needs no other connections for its commands than those that are open
// now.
func (h *hanging) client(t *testing.T) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{Dialer: h.dial, PoolSize: 20, MinIdleConns: 20, PipelinePoolSize: -1})
	t.Cleanup(func() {
		close(h.ends)
		_ = client.Close()
	})
	locktest.Eventually(t, "the connections are open", func() bool { return client.PoolStats().IdleConns == 20 })
	return client
}

// TestSubscriptionThatDialsHoldsUpNoCommand: the subscription of a process breaks, and new
// connections hang. Its locks are renewed, and it gets its share of four keys that another process
// wants too.
func TestSubscriptionThatDialsHoldsUpNoCommand(t *testing.T) {
	t.Parallel()
	h := &hanging{s: redistest.StartTCP(t), ends: make(chan struct{})}
	var renewed atomic.Int64
	own := locktest.SetNXPX(t, h.client(t))
	other := locktest.SetNXPX(t, h.s.Client(t))
	unrelated := locktest.MustLock(t, own, "unrelated", redlatch.WithTTL(locktest.BriefTTL),
		redlatch.WithHooks(redlatch.Hooks{Renewed: func(context.Context, redlatch.Event) { renewed.Add(1) }}))
	var granted [4]atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	var workers sync.WaitGroup
	defer workers.Wait()
	defer stop()
	for i := range granted {
		for _, l := range []redlatch.Locker{own, other} {
			workers.Go(func() {
				for ctx.Err() == nil {
					lock, err := l.Lock(ctx, fmt.Sprint("hot ", i))
					if err != nil {
						continue
					}
					<-time.After(time.Millisecond)
					if lock.Unlock(ctx) == nil && l == own {
						granted[i].Add(1)
					}
				}
			})
		}
	}
	all := func(than int64) bool {
		for i := range granted {
			if granted[i].Load() < than {
				return false
			}
		}
		return true
	}
	locktest.Eventually(t, "both processes listen, and have their share", func() bool {
		return len(h.s.Client(t).PubSubChannels(t.Context(), "redlatch:*").Val()) == 2 && all(10)
	})

	h.hangs.Store(true)
	require.NoError(t, h.s.Client(t).Do(t.Context(), "client", "kill", "type", "pubsub").Err())
	renewed.Store(0)
	for i := range granted {
		granted[i].Store(0)
	}
	locktest.Eventually(t, "the process goes on", func() bool {
		require.NoError(t, unrelated.Err())
		return renewed.Load() >= 4 && all(10)
	})
}

// TestSubscriptionFollowsTheAddressOfThePrimary: an address moves while the old primary lives, so
// subscriptions stay there. A release on the new primary does not find the waiter. Its look finds
// the key free, and the process subscribes anew, though no look was refused.
func TestSubscriptionFollowsTheAddressOfThePrimary(t *testing.T) {
	t.Parallel()
	kinds := map[string]func(t *testing.T, c redis.UniversalClient) redlatch.Locker{
		"SetNXPX":   func(t *testing.T, c redis.UniversalClient) redlatch.Locker { return locktest.SetNXPX(t, c) },
		"Semaphore": func(t *testing.T, c redis.UniversalClient) redlatch.Locker { return locktest.Semaphore(t, c, 1) },
	}
	for name, open := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := startMoved(t)
			p := faultproxy.New(t, m.old.Network(), m.old.Addr())
			holder, waiter := open(t, p.Client(t)), open(t, p.Client(t))
			lock, long := locktest.MustLock(t, holder, "k"), locktest.MustLock(t, holder, "long")
			stays := locktest.WaitInLine(t, waiter, "long") // so the subscription is used all the time
			channels := func(s *redistest.Server) int { return len(s.Client(t).PubSubChannels(t.Context(), "redlatch:*").Val()) }
			locktest.Eventually(t, "the waiter has subscribed", func() bool { return channels(m.old) == 1 })
			next := locktest.WaitInLine(t, waiter, "k")
			m.promote(t)
			m.demote(t, m.promoted.Addr())
			p.PointAt(m.promoted.Network(), m.promoted.Addr())
			if redistest.KeepsReplicas {
				require.NoError(t, m.old.Client(t).Do(t.Context(), "client", "kill", "type", "normal").Err())
			}
			require.NoError(t, lock.Unlock(t.Context()))
			lock = <-next
			require.NotNil(t, lock)
			locktest.Eventually(t, "the waiter has subscribed at the new primary", func() bool { return channels(m.promoted) == 1 })
			require.NoError(t, lock.Unlock(t.Context()))
			require.NoError(t, long.Unlock(t.Context()))
			require.NoError(t, (<-stays).Unlock(t.Context()))
		})
	}
}
