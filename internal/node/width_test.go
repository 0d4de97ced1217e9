package node

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

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
	trips(fewTrips-1, 11*time.Millisecond, 1)
	require.Zero(t, w.couriers())
	trips(1, 11*time.Millisecond, 1)
	require.Equal(t, 100, w.couriers())
	trips(1, 2*time.Millisecond, 10)
	require.Equal(t, 10, w.couriers())
	trips(100, time.Second, 1)
	require.Equal(t, 10, w.couriers())
	now = now.Add(1500 * time.Millisecond)
	trips(fewTrips, 11*time.Millisecond, 1)
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
		"many":     {connected, true},
		"half":     {2 * couriers, false},
		"very few": {1, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const way = 20 * time.Millisecond
				var hangs atomic.Bool
				release := make(chan struct{})
				open := sync.OnceFunc(func() { close(release) })
				defer open()
				n := answered(t, func(batch) error {
					time.Sleep(way)
					if hangs.Load() {
						<-release
					}
					return nil
				})
				n.mostOfUse = test.connections / 2
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
