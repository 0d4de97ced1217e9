package system_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// TestMigrationNeighboursExclude: processes of two successive generations never hold one key at the same time.
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
				from, to := pair(t, clients, redlatch.WithTTL(time.Minute))
				return []redlatch.Locker{from, locktest.Migration(t, from, to), to}[generation]
			}
			for older := range 2 {
				shareAKey(t, process(older), process(older+1), process(older), process(older+1))
			}
		})
	}
}

// shareAKey makes two callers of each process hold one key ten times.
func shareAKey(t *testing.T, processes ...redlatch.Locker) {
	t.Helper()
	var inside atomic.Int32
	var wg sync.WaitGroup
	for i := range 2 * len(processes) {
		wg.Go(func() {
			for range 10 {
				err := redlatch.Do(t.Context(), processes[i/2], "k", func(context.Context, *redlatch.Lock) error {
					if inside.Add(1) > 1 {
						t.Error("two callers hold the key")
					}
					defer inside.Add(-1)
					<-time.After(rand.N(2 * time.Millisecond))
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}
