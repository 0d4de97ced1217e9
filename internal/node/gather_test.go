package node

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
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
		require.LessOrEqual(t, late.Load(), calls.Load()/50, "of %d", calls.Load())
	})
}

// TestGatheringInVainIsTriedLessOften: if callers do not send their next calls at once, fewer and fewer
// couriers wait for them, until they do again.
func TestGatheringInVainIsTriedLessOften(t *testing.T) {
	t.Parallel()
	var g gathering
	waits := func(landings, came int) (at []int) {
		for i := range landings {
			if g.delivered(2); g.begins() {
				require.Equal(t, 2, g.missing, "of this one alone")
				for range came {
					g.came()
				}
				g.ends()
				at = append(at, i+1)
			}
			require.Zero(t, g.missing)
		}
		return at
	}
	require.Equal(t, []int{1, 2, 4, 8, 16, 32, 64, 128, 192}, waits(200, 1))
	require.Equal(t, []int{56, 57, 58, 59, 60}, waits(60, 2))
	require.Equal(t, []int{1, 2, 4}, waits(5, 0))
	require.Equal(t, []int{3, 4}, waits(4, 3), "others may send calls, too")
}
