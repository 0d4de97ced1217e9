package behavior_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/locktest"
)

// TestProcessesThatPollAndThoseThatQueueShareAKey: in every step from a fleet that polls to one
// that queues, each process is served as often as the others, but for a third.
func TestProcessesThatPollAndThoseThatQueueShareAKey(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ queue, poll int }{{1, 1}, {1, 2}, {2, 1}, {1, 5}, {5, 1}} {
		for _, callers := range []int{1, 4} {
			t.Run(fmt.Sprintf("%d queue and %d poll, with %d callers each", c.queue, c.poll, callers), func(t *testing.T) {
				t.Parallel()
				locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
					var lockers []redlatch.Locker
					for i := range c.queue + c.poll {
						var opts []redlatch.Option
						if i >= c.queue {
							opts = append(opts, redlatch.WithoutQueue())
						}
						client := s.Client(t)
						client.AddHook(distant(time.Millisecond))
						lockers = append(lockers, newLocker(t, client, opts...))
					}
					grants := grantsOf(t, lockers, callers, 5*time.Second)
					t.Log(grants)
					require.LessOrEqual(t, 3*(slices.Max(grants)-slices.Min(grants)), slices.Max(grants), grants)
				})
			})
		}
	}
}

// TestProcessesThatPollLeaveTheQueueWithTheLastThatQueues: a second later, so that clients of other
// libraries, which poll, find the key free.
func TestProcessesThatPollLeaveTheQueueWithTheLastThatQueues(t *testing.T) {
	t.Parallel()
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		begin := time.Now()
		var crowd sync.WaitGroup
		crowd.Go(func() { grantsOf(t, []redlatch.Locker{newLocker(t, s.Client(t))}, 2, 3*time.Second) })
		crowd.Go(func() {
			poll := []redlatch.Locker{newLocker(t, s.Client(t), redlatch.WithoutQueue()), newLocker(t, s.Client(t), redlatch.WithoutQueue())}
			grantsOf(t, poll, 2, 10*time.Second)
		})
		time.Sleep(2 * time.Second)
		eventually(t, "all queue", func() bool { return s.Direct.ZCard(t.Context(), "{k}:queue:k").Val() == 2 })
		time.Sleep(5*time.Second - time.Since(begin))
		free := 0
		for time.Since(begin) < 8*time.Second {
			require.Zero(t, s.Direct.Exists(t.Context(), "{k}:queue:k").Val())
			if s.Direct.SetNX(t.Context(), "k", "theirs", time.Second).Val() {
				free++
				time.Sleep(10 * time.Millisecond)
				require.NoError(t, s.Direct.Del(t.Context(), "k").Err())
			}
			time.Sleep(time.Millisecond)
		}
		require.Greater(t, free, 50)
		crowd.Wait()
	})
}

// grantsOf returns how often each Locker is granted a key within a time. Its callers hold it for
// 10 ms, again and again.
func grantsOf(t *testing.T, lockers []redlatch.Locker, callers int, within time.Duration) []int64 {
	grants := make([]atomic.Int64, len(lockers))
	var crowd sync.WaitGroup
	begin := time.Now()
	for i, l := range lockers {
		for range callers {
			crowd.Go(func() {
				for time.Since(begin) < within {
					lock, err := l.Lock(t.Context(), "k")
					if !assert.NoError(t, err) {
						return
					}
					grants[i].Add(1)
					time.Sleep(10 * time.Millisecond)
					assert.NoError(t, lock.Unlock(t.Context()))
				}
			})
		}
	}
	crowd.Wait()
	var all []int64
	for i := range grants {
		all = append(all, grants[i].Load())
	}
	return all
}
