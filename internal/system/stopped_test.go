package system_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// TestStoppedServerKeepsNoLock: a server is stopped while 200 calls of TryLock are under way, whose callers wait for 200 ms. What
// it comes to when it goes on is too late, or is released.
func TestStoppedServerKeepsNoLock(t *testing.T) {
	t.Parallel()
	for name, open := range strategies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, other := redistest.Start(t), redistest.Start(t)
			l, err := open(s.Client(t), other.Client(t), redlatch.WithTTL(time.Minute), redlatch.WithOpTimeout(500*time.Millisecond))
			require.NoError(t, err)
			require.NoError(t, locktest.LockSoon(t, l, "warm").Unlock(t.Context()))
			s.Pause()
			goesOn := time.AfterFunc(time.Second, s.Resume)
			t.Cleanup(func() { goesOn.Stop() })
			var callers sync.WaitGroup
			for i := range 200 {
				callers.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
					defer cancel()
					if lock, err := l.TryLock(ctx, fmt.Sprint("k", i)); err == nil {
						_ = lock.Unlock(t.Context())
					}
				})
			}
			callers.Wait()
			for _, server := range []*redistest.Server{s, other} {
				direct := server.Client(t)
				require.NoError(t, direct.Ping(t.Context()).Err(), "it goes on")
				locktest.Eventually(t, "no key is left", func() bool { return len(direct.Keys(t.Context(), "k*").Val()) == 0 })
			}
		})
	}
}
