package behavior_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/faultproxy"
	"github.com/redlatch/redlatch/internal/redistest"
)

// TestShortWaitsAreServedBesideLongOnes: the callers of one process wait for 50 ms at most, over a link of 6 ms, beside two processes
// whose callers wait for as long as it takes. A distant server is no reason to poll: the line queues, and gets its turns.
func TestShortWaitsAreServedBesideLongOnes(t *testing.T) {
	t.Parallel()
	const callers = 4
	s := redistest.Start(t)
	p := faultproxy.New(t, s.Network(), s.Addr())
	var grants [3]atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i, patience := range []time.Duration{time.Minute, time.Minute, 50 * time.Millisecond} {
		l := newLocker(t, p.Client(t))
		lock, err := l.TryLock(t.Context(), "warm")
		require.NoError(t, err)
		require.NoError(t, lock.Unlock(t.Context()))
		for range callers {
			wg.Go(func() {
				for ctx.Err() == nil {
					brief, end := context.WithTimeout(ctx, patience)
					lock, err := l.Lock(brief, "k")
					end()
					if err != nil {
						continue
					}
					<-time.After(time.Millisecond) // what the lock is for
					_ = lock.Unlock(t.Context())
					grants[i].Add(1)
				}
			})
		}
	}
	p.Delay(6 * time.Millisecond)
	time.AfterFunc(4*time.Second, cancel)
	wg.Wait()
	t.Log(grants[0].Load(), grants[1].Load(), grants[2].Load())
	require.Greater(t, 5*grants[2].Load(), max(grants[0].Load(), grants[1].Load()))
}
