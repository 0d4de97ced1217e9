package system_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// TestMigrationNeighboursExclude: processes of two successive generations never hold one key at the
// same time. Some acquire it by TryLock, and one crashes while it holds it.
func TestMigrationNeighboursExclude(t *testing.T) {
	t.Parallel()
	for name, pair := range locktest.Pairs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var servers []*redistest.Server
			for range 3 {
				servers = append(servers, redistest.Start(t))
			}
			// process returns the Locker of a process of a generation, with clients of its own.
			process := func(generation int) redlatch.Locker {
				var clients []*redis.Client
				for _, s := range servers {
					clients = append(clients, s.Client(t))
				}
				from, to := pair(t, clients, redlatch.WithTTL(1500*time.Millisecond), redlatch.WithoutRenewal())
				return []redlatch.Locker{from, locktest.Migration(t, from, to), to}[generation-1]
			}
			for older := 1; older <= 2; older++ {
				runFleet(t, fmt.Sprintf("generations %d and %d", older, older+1), process(older), process(older+1), process(older), process(older+1))
			}
		})
	}
}

// runFleet makes processes lock one key until each of them has done so ten times, and for at least
// a second.
func runFleet(t *testing.T, key string, processes ...redlatch.Locker) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	var owner atomic.Pointer[redlatch.Lock] // the lock of the last to enter, until it leaves
	var overlaps, crashes atomic.Int64
	entered := make([]atomic.Int64, len(processes))
	done := func() bool {
		for i := range entered {
			if entered[i].Load() < 10 {
				return false
			}
		}
		return true
	}
	enough := make(chan struct{})
	begin := time.Now()
	failures := make(chan error, 2*len(processes))
	var once sync.Once
	var wg sync.WaitGroup
	for i, l := range processes {
		for _, take := range []func(context.Context, string, ...redlatch.Option) (*redlatch.Lock, error){l.Lock, l.TryLock} {
			wg.Go(func() {
				for {
					select {
					case <-enough:
						return
					case <-ctx.Done():
						failures <- fmt.Errorf("process %d: %w", i, ctx.Err())
						return
					case <-time.After(rand.N(5 * time.Millisecond)):
					}
					lock, err := take(ctx, key)
					if errors.Is(err, redlatch.ErrNotAcquired) || errors.Is(err, redlatch.ErrLost) {
						continue
					}
					if err != nil {
						failures <- err
						return
					}
					before := owner.Swap(lock)
					if before != nil && before.Err() == nil && lock.Err() == nil {
						overlaps.Add(1)
					}
					<-time.After(rand.N(2 * time.Millisecond))
					if entered[i].Add(1) >= 10 && time.Since(begin) > time.Second && done() {
						once.Do(func() { close(enough) })
					}
					if rand.N(20) == 0 && crashes.CompareAndSwap(0, 1) {
						continue // a crash: it trusts its lock until the lease ends
					}
					owner.CompareAndSwap(lock, nil)
					if err := lock.Unlock(ctx); err != nil && !errors.Is(err, redlatch.ErrLost) {
						failures <- err
						return
					}
				}
			})
		}
	}
	wg.Wait()
	close(failures)
	require.NoError(t, <-failures)
	require.Zero(t, overlaps.Load(), key)
}
