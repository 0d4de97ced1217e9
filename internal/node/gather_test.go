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
		n.share = shareOf(18)
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
				g.came(now)
			}
			now = now.Add(gatherFor - 1)
			require.Equal(t, len(at) > 0 && at[len(at)-1] == i+1 && came < 2, g.waits(now))
			now++
			require.False(t, g.waits(now))
		}
		return at
	}
	require.Equal(t, []int{1, 3, 7, 15, 31, 63, 127, 191}, tries(200, 1))
	require.Equal(t, []int{55, 56, 57, 58, 59, 60}, tries(60, 2))
	for range 10 {
		tries(1, 2)
	}
	require.Equal(t, []int{1, 3}, tries(5, 0))
	require.Equal(t, []int{2, 3, 4}, tries(4, 3), "others may send calls, too")
}

// TestGatheringIsForCallersOfALongTrip: batches that come back meanwhile count, and do not make the wait
// longer. One that served a single caller begins none.
func TestGatheringIsForCallersOfALongTrip(t *testing.T) {
	t.Parallel()
	var g gathering
	now := clock.Mono(time.Hour)
	g.landed(2, longTrip-1, now)
	require.False(t, g.waits(now))
	g.landed(1, time.Second, now)
	require.False(t, g.waits(now))
	g.came(now)
	g.landed(2, longTrip, now)
	g.landed(1, time.Second, now)
	for range 2 {
		g.came(now)
		require.True(t, g.waits(now.Add(gatherFor-1)))
	}
	g.came(now)
	require.False(t, g.waits(now))
	g.landed(5, longTrip, now)
	now = now.Add(gatherFor)
	g.landed(2, longTrip, now) // the five have not come
	require.False(t, g.waits(now))
	g.landed(2, longTrip, now)
	require.True(t, g.waits(now.Add(gatherFor-1)))
	for range 2 {
		g.came(now.Add(gatherFor)) // too late to show that it is of use
	}
	g.landed(2, longTrip, now.Add(gatherFor))
	require.False(t, g.waits(now.Add(gatherFor)))
}

// TestRenewalDoesNotWaitForOthers, though callers are missing who were served just now.
func TestRenewalDoesNotWaitForOthers(t *testing.T) {
	for _, urgent := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			n := longWay(t)
			n.mu.Lock()
			n.gathering = gathering{missing: 2, until: clock.MonoNow().Add(gatherFor)}
			n.mu.Unlock()
			c := Command("get")
			c.Urgent = urgent
			begin := time.Now()
			do(n, c)
			require.Equal(t, !urgent, time.Since(begin) > aLongWay)
			require.LessOrEqual(t, time.Since(begin), aLongWay+tick)
		})
	}
}

// TestLastCourierDoesNotWaitForOthers: no other one may start for the calls in the mailbox.
func TestLastCourierDoesNotWaitForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := longWay(t)
		n.mu.Lock()
		n.most, n.share = 1, shareOf(3)
		n.mu.Unlock()
		first := post(n, Command("get"))
		time.Sleep(aLongWay / 2)
		second := post(n, Command("get"))
		n.mu.Lock()
		writtenOff := n.writtenOff
		n.gathering = gathering{missing: 2, until: clock.MonoNow().Add(time.Minute)}
		n.writtenOff = n.mostWrittenOff
		n.mu.Unlock()
		requireOK(t, false, <-first)
		requireOK(t, false, <-second)
		n.mu.Lock()
		n.writtenOff = writtenOff
		n.mu.Unlock()
	})
}

const aLongWay = 20 * time.Millisecond

// longWay returns a node that knows that its server is far away.
func longWay(t *testing.T) *Node {
	t.Helper()
	n := answered(t, func(commands) error { time.Sleep(aLongWay); return nil })
	n.share = shareOf(18)
	for range fewBatches {
		do(n, Command("get"))
	}
	return n
}
