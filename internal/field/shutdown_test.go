package field_test

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/redistest"
)

// TestRollingDeployLeavesNothing: ten times, a process with 60 callers gets SIGTERM, stops by the
// recipe for a shutdown, and ends while the next one works. Together they leave no lock and no entry
// of the queue, and no call fails.
func TestRollingDeployLeavesNothing(t *testing.T) {
	if addr := os.Getenv(childsPart); addr != "" {
		deployed(t, addr)
		return
	}
	t.Parallel()
	addr := redistest.Start(t).Options().Addr
	direct := redis.NewClient(&redis.Options{Addr: addr})
	defer direct.Close()
	var last child
	for range 10 {
		next := startChild(t, addr)
		require.Equal(t, "works", next.says(t))
		if last.Cmd != nil {
			stopDeployed(t, last)
		}
		last = next
	}
	stopDeployed(t, last)
	left, err := direct.Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	require.Subset(t, []string{"redlatch:fence"}, left)
}

// says returns the next line that a process says, with a deadline that only a failure reaches.
func (c child) says(t *testing.T) (line string) {
	t.Helper()
	select {
	case line = <-c.said:
	case <-time.After(time.Minute):
		require.Fail(t, "the process says nothing")
	}
	return line
}

// stopDeployed has a process stop, and requires that it stops as it should.
func stopDeployed(t *testing.T, c child) {
	t.Helper()
	require.NoError(t, c.Process.Signal(syscall.SIGTERM))
	require.Equal(t, "stopped <nil>", c.says(t))
	require.NoError(t, c.Wait())
}

// deployed is the process. It is the recipe, but for what it says.
func deployed(t *testing.T, addr string) {
	ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGTERM)
	defer stop()
	client := redis.NewClient(&redis.Options{Addr: addr})
	locker, err := redlatch.NewSetNXPX(client)
	require.NoError(t, err)
	var workers sync.WaitGroup
	var once sync.Once
	for range 60 {
		workers.Go(func() {
			for ctx.Err() == nil {
				err := redlatch.Do(ctx, locker, "orders", func(ctx context.Context, _ *redlatch.Lock) error {
					once.Do(func() { say("works") })
					time.Sleep(time.Millisecond)
					return ctx.Err()
				})
				if err != nil && ctx.Err() == nil {
					say(err)
				}
			}
		})
	}
	<-ctx.Done()
	workers.Wait()
	leaving, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	say("stopped", errors.Join(redlatch.Drain(leaving, locker), client.Close()))
}
