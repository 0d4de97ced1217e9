package node

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/clock"
)

// TestServedTogetherSendTogether: on a long way, callers whose calls came back together send the next
// ones together. So hardly any call finds all couriers away.
func TestServedTogetherSendTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const way, callers = 20 * time.Millisecond, 16
		n := answered(t, func(commands) error {
			time.Sleep(way + rand.N(2*time.Millisecond))
			return nil
		})
		n.mostOfUse = 6
		var calls, late atomic.Int64
		var over atomic.Bool
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				for !over.Load() {
					begin := time.Now()
					do(n, Command("get"))
					calls.Add(1)
					if time.Since(begin) > way+3*time.Millisecond {
						late.Add(1)
					}
				}
			})
		}
		time.Sleep(time.Second)
		calls.Store(0)
		late.Store(0)
		time.Sleep(10 * time.Second)
		over.Store(true)
		wg.Wait()
		require.Zero(t, late.Load(), "of %d", calls.Load())
		time.Sleep(time.Second)
		require.True(t, idle(n))
	})
}

// TestGatheringInVainIsTriedLessOften: if callers do not send their next calls at once, it is tried for
// fewer and fewer batches, until they do again.
func TestGatheringInVainIsTriedLessOften(t *testing.T) {
	t.Parallel()
	const trip = 20 * time.Millisecond
	var g gathering
	now := clock.Mono(time.Hour)
	// tries returns for which of some batches it was tried, of whose two callers some came.
	tries := func(batches, came int) (at []int) {
		for i := range batches {
			if g.landed(2, trip, now); g.waits(now) {
				at = append(at, i+1)
			}
			for range came {
				g.came()
			}
			now = now.Add(gatherFor - 1)
			require.Equal(t, len(at) > 0 && at[len(at)-1] == i+1 && came < 2, g.waits(now))
			now++
			require.False(t, g.waits(now))
		}
		return at
	}
	require.Equal(t, []int{1, 2, 4, 8, 16, 32, 64, 128, 192}, tries(200, 1))
	require.Equal(t, []int{56, 57, 58, 59, 60}, tries(60, 2))
	for range 10 {
		tries(1, 2)
	}
	require.Equal(t, []int{1, 2, 4}, tries(5, 0))
	require.Equal(t, []int{3, 4}, tries(4, 3), "others may send calls, too")
}

// TestGatheringIsForCallersOfALongTrip: batches that come back meanwhile count, and do not make the wait
// longer. Those that served nobody do not count.
func TestGatheringIsForCallersOfALongTrip(t *testing.T) {
	t.Parallel()
	var g gathering
	now := clock.Mono(time.Hour)
	g.landed(1, longTrip-1, now)
	require.False(t, g.waits(now))
	g.landed(0, time.Second, now)
	require.False(t, g.waits(now))
	g.came()
	g.landed(1, longTrip, now)
	g.landed(2, time.Second, now)
	for range 2 {
		g.came()
		require.True(t, g.waits(now.Add(gatherFor-1)))
	}
	g.came()
	require.False(t, g.waits(now))
	g.landed(5, longTrip, now)
	now = now.Add(gatherFor)
	g.landed(1, longTrip, now) // the five have not come
	require.True(t, g.waits(now.Add(gatherFor-1)))
	g.came()
	require.False(t, g.waits(now))
}
