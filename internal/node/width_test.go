package node

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/clock"
)

// TestWidthIsThatOfTheShortestTrip: a busy machine delays many trips, but not each. What was two
// seconds ago does not count, nor do the first trips, which open connections.
func TestWidthIsThatOfTheShortestTrip(t *testing.T) {
	t.Parallel()
	var w width
	now := clock.Mono(time.Hour)
	trips := func(n int, took time.Duration, calls int) {
		for range n {
			w.observe(now, took, calls)
		}
	}
	trips(fewBatches-1, 11*time.Millisecond, 1)
	require.Zero(t, w.couriers())
	trips(1, 11*time.Millisecond, 1)
	require.Equal(t, 100, w.couriers())
	trips(1, 2*time.Millisecond, 10)
	require.Equal(t, 10, w.couriers())
	trips(100, time.Second, 1)
	require.Equal(t, 10, w.couriers())
	now = now.Add(1500 * time.Millisecond)
	trips(fewBatches, 11*time.Millisecond, 1)
	require.Equal(t, 10, w.couriers())
	now = now.Add(1500 * time.Millisecond)
	trips(1, 11*time.Millisecond, 1)
	require.Equal(t, 100, w.couriers())
	now = now.Add(time.Minute)
	trips(1, 11*time.Millisecond, 1)
	require.Zero(t, w.couriers())
}

// TestLongWayHasFurtherCouriers: calls that come one by one over a network need not wait until a
// courier is back, if the client has connections to spare. While the server is silent, no further
// courier starts.
func TestLongWayHasFurtherCouriers(t *testing.T) {
	for name, test := range map[string]struct {
		connections int
		all         bool
	}{
		"many":     {75, true},
		"few":      {3 * couriers, false},
		"very few": {1, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const way = 20 * time.Millisecond
				var hangs atomic.Bool
				var inUse atomic.Int64
				release := make(chan struct{})
				open := sync.OnceFunc(func() { close(release) })
				defer open()
				n := answered(t, func(commands) error {
					inUse.Add(1)
					defer inUse.Add(-1)
					time.Sleep(way)
					if hangs.Load() {
						<-release
					}
					return nil
				})
				n.pool = pool{test.connections, func() (total, idle int) {
					return test.connections, test.connections - int(inUse.Load())
				}}
				var late atomic.Int64
				post := func(timeout time.Duration, count int) {
					for range count {
						begin, c := time.Now(), within(Command("get"), timeout)
						c.Done = func(Reply) {
							if time.Since(begin) > way {
								late.Add(1)
							}
						}
						n.Post(t.Context(), c)
						time.Sleep(time.Millisecond)
					}
				}
				post(time.Second, 200)
				late.Store(0)
				post(time.Second, 200)
				require.Equal(t, test.all, late.Load() == 0)
				time.Sleep(time.Second)
				hangs.Store(true)
				post(50*time.Millisecond, 130) // those that left before the first timeout have ended
				require.True(t, silent(n))
				n.mu.Lock()
				busy := n.busy
				n.mu.Unlock()
				require.LessOrEqual(t, busy, couriers)
				open()
				time.Sleep(time.Second)
				require.True(t, idle(n))
			})
		})
	}
}

// TestCouriersGoHome: when the way is short again, no more couriers carry calls than before.
func TestCouriersGoHome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var way atomic.Int64
		n := answered(t, func(commands) error { time.Sleep(time.Duration(way.Load())); return nil })
		busy := func() int {
			n.mu.Lock()
			defer n.mu.Unlock()
			return n.busy
		}
		var over atomic.Bool
		var again func(Reply)
		again = func(Reply) { // each courier finds the next calls of its receivers
			if !over.Load() {
				c := within(Command("get"), time.Second)
				c.Done = again
				n.Post(t.Context(), c)
			}
		}
		way.Store(int64(20 * time.Millisecond))
		for range fewBatches {
			do(n, Command("get"))
		}
		for range 4 * couriers {
			again(Reply{})
			time.Sleep(1006 * time.Microsecond) // no two come back at the same instant
		}
		time.Sleep(time.Second)
		require.Greater(t, busy(), couriers)
		way.Store(int64(100 * time.Microsecond))
		time.Sleep(time.Second)
		require.LessOrEqual(t, busy(), couriers)
		over.Store(true)
		time.Sleep(time.Second)
		require.True(t, idle(n))
	})
}

// TestConnectionsOfAClient are those of its pool, or fewer if the client may not open so many.
func TestConnectionsOfAClient(t *testing.T) {
	t.Parallel()
	for want, o := range map[int]*redis.Options{30: {PoolSize: 30}, 20: {PoolSize: 30, MaxActiveConns: 20}, 10: {PoolSize: 10, MaxActiveConns: 20}} {
		client := redis.NewClient(o)
		require.Equal(t, want, connections(client))
		require.NoError(t, client.Close())
	}
}

// TestRoomOfAPool: a fifth of the connections is left to others, rounded up.
func TestRoomOfAPool(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		size, total, idle int
		want              room
	}{
		{0, 0, 0, full},
		{20, 0, 0, closed},
		{20, 4, 0, closed},
		{20, 4, 1, open},
		{20, 16, 1, open},
		{20, 15, 0, closed},
		{20, 16, 0, low},
		{20, 20, 4, low},
		{20, 20, 5, open},
		{20, 19, 0, low},
		{20, 20, 0, full},
		{20, 22, 0, full}, // one for subscriptions may be counted
		{4, 4, 1, low},
		{4, 4, 2, open},
		{1, 1, 1, low},
		{1, 1, 0, full},
	} {
		p := pool{test.size, func() (total, idle int) { return test.total, test.idle }}
		require.Equal(t, test.want, p.room(), "%+v", test)
	}
}

// TestCourierDoesNotWaitForItsConnection: on a long way, a connection is opened in the background, one
// at a time. The courier starts when it is open. Meanwhile the others carry the calls.
func TestCourierDoesNotWaitForItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const way, dial = 20 * time.Millisecond, 60500 * time.Microsecond
		var total, inUse, opening atomic.Int64
		opens := hook(func(_ context.Context, cmds []redis.Cmder, next func() error) error {
			if !opensAConnection(said(cmds)) {
				return next()
			}
			if opening.Add(1) > 1 {
				t.Error("two at once")
			}
			time.Sleep(dial)
			opening.Add(-1)
			total.Add(1)
			return nil
		})
		n := answered(t, func(commands) error {
			if inUse.Add(1) > total.Load() {
				t.Error("a call waits for a connection")
			}
			time.Sleep(way)
			inUse.Add(-1)
			return nil
		}, opens)
		total.Store(5) // the third of the pool that couriers may use in any case
		n.pool = pool{15, func() (all, idle int) { return int(total.Load()), int(total.Load() - inUse.Load()) }}
		for range 2000 {
			n.Post(t.Context(), within(Command("get"), time.Second))
			time.Sleep(1006 * time.Microsecond) // no call comes when a courier does
		}
		require.Equal(t, int64(12), total.Load(), "a fifth is left to others")
		time.Sleep(time.Second)
		require.True(t, idle(n))
	})
}
