package node

import (
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
	require.Equal(t, 244, w.couriers())
	trips(1, 2*time.Millisecond, 10)
	require.Equal(t, 41, w.couriers())
	trips(100, time.Second, 1)
	require.Equal(t, 41, w.couriers())
	now = now.Add(1500 * time.Millisecond)
	trips(fewBatches, 11*time.Millisecond, 1)
	require.Equal(t, 41, w.couriers())
	now = now.Add(1500 * time.Millisecond)
	trips(1, 11*time.Millisecond, 1)
	require.Equal(t, 244, w.couriers())
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
				release := make(chan struct{})
				open := sync.OnceFunc(func() { close(release) })
				defer open()
				n := answered(t, func(commands) error {
					time.Sleep(way)
					if hangs.Load() {
						<-release
					}
					return nil
				})
				n.share = shareOf(test.connections)
				var late atomic.Int64
				post := func(timeout time.Duration, count int) {
					for range count {
						begin, c := time.Now(), within(Command("get"), timeout)
						c.Done = func(Reply) {
							if time.Since(begin) > way+tick {
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
				post(50*time.Millisecond, 80)
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
