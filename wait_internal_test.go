package redlatch

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestPollersAreServedInTheEnd is rule 32: 8 processes poll for a quorum, each holds the lock for 200 ms and wants it again at
// once. Nobody waits for longer than four times a fair turn.
func TestPollersAreServedInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const processes, hold = 8, 200 * time.Millisecond
		var clients []redis.UniversalClient
		for range 3 {
			_, client := bubbleRedis(t)
			clients = append(clients, client)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		var mu sync.Mutex // guards the fields below
		var longest time.Duration
		var grants int
		var wg sync.WaitGroup
		per := make([]int, processes)
		for i := range processes {
			l, err := NewRedlock(clients)
			require.NoError(t, err)
			wg.Go(func() {
				for ctx.Err() == nil {
					begin := time.Now()
					lock, err := l.Lock(ctx, "k")
					mu.Lock()
					longest = max(longest, time.Since(begin))
					grants++
					per[i]++
					mu.Unlock()
					if err != nil {
						return
					}
					time.Sleep(hold)
					_ = lock.Unlock(ctx)
				}
			})
		}
		wg.Wait()
		t.Log(per)
		t.Logf("%d grants, the longest wait was %v", grants, longest)
		require.Less(t, longest, 4*processes*hold)
		require.Greater(t, grants, 75)
		time.Sleep(time.Minute)
	})
}
