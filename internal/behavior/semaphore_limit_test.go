package behavior_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
)

// TestLimitChangesInARollingDeploy: three processes with a limit of 4 are replaced, one by one and under load, by three with a
// limit of 8, and these by three with a limit of 2. No call fails, somebody is served in every second, and never more hold a
// permit than the largest limit in use.
func TestLimitChangesInARollingDeploy(t *testing.T) {
	t.Parallel()
	const callers, hold, lasts = 6, 5 * time.Millisecond, 400 * time.Millisecond
	s := redistest.Start(t)
	var holding, most, last atomic.Int64
	last.Store(time.Now().UnixNano())
	var wg sync.WaitGroup
	// start starts a process of callers, and returns what stops it.
	start := func(limit int) context.CancelFunc {
		ctx, cancel := context.WithCancel(t.Context())
		l := newSemaphore(t, s.Client(t), limit)
		for range callers {
			wg.Go(func() { // the test waits for it below
				for {
					lock, err := l.Lock(ctx, "k")
					if err != nil {
						assert.ErrorIs(t, err, context.Canceled)
						return
					}
					most.Store(max(most.Load(), holding.Add(1)))
					now := time.Now().UnixNano()
					assert.Less(t, time.Duration(now-last.Swap(now)), time.Second, "a gap")
					<-time.After(hold) // what the permit is for
					holding.Add(-1)
					assert.NoError(t, lock.Unlock(t.Context()))
				}
			})
		}
		return cancel
	}
	var running []context.CancelFunc
	for _, limit := range []int{4, 8, 2} {
		most.Store(0)
		for range 3 {
			running = append(running, start(limit))
			if len(running) > 3 {
				running[0]()
				running = running[1:]
			}
			<-time.After(lasts)
		}
		require.LessOrEqual(t, most.Load(), int64(8))
		require.Greater(t, most.Load(), int64(1))
	}
	require.Eventually(t, func() bool { return holding.Load() <= 2 }, 5*time.Second, time.Millisecond)
	for _, stop := range running {
		stop()
	}
	wg.Wait()
	onlyFences(t, s.Client(t))
}
