package system_test

import (
	"context"
	"errors"
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

// TestMigrationNeighboursExclude: processes of two successive generations never hold one key at the
// same time. Some acquire it by TryLock.
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
	var inside atomic.Int64
	var wg sync.WaitGroup
	for _, l := range processes {
		for _, take := range []func(context.Context, string, ...redlatch.Option) (*redlatch.Lock, error){l.Lock, l.TryLock} {
			wg.Go(func() {
				for entered := 0; entered < 10; <-time.After(rand.N(5 * time.Millisecond)) {
					lock, err := take(t.Context(), "k")
					if errors.Is(err, redlatch.ErrNotAcquired) && t.Context().Err() == nil {
						continue
					}
					if err != nil {
						t.Error(err)
						return
					}
					entered++
					if inside.Add(1) != 1 {
						t.Error("two owners")
					}
					<-time.After(rand.N(2 * time.Millisecond))
					inside.Add(-1)
					if err := lock.Unlock(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
}
