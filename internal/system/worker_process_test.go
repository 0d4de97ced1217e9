package system_test

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// TestWorkerProcessCarriesOnUnderAnAdoptedLock: a process that was sent the token of a lock adopts
// the lock. The adopted lock outlives the first handle, it has a higher fence, and its release
// frees the key.
func TestWorkerProcessCarriesOnUnderAnAdoptedLock(t *testing.T) {
	t.Parallel()
	if addr := locktest.Part(); addr != "" {
		beWorker(t, addr)
		return
	}
	s := redistest.Start(t)
	l := locktest.SetNXPX(t, s.Client(t), redlatch.WithTTL(4*time.Second)) // long enough to start a process
	worker := locktest.Start(t, s.Addr())

	lock := locktest.MustLock(t, l, "k", redlatch.WithoutRenewal())
	_, err := fmt.Fprintln(worker.In, lock.Token())
	require.NoError(t, err)
	var adopted uint64
	_, err = fmt.Sscanf(<-worker.Said, "has fence %d", &adopted)
	require.NoError(t, err)
	require.Greater(t, adopted, lock.Fence())
	<-lock.Done()
	require.ErrorIs(t, lock.Err(), redlatch.ErrLost, "the lease of the first handle has ended")
	for range len(worker.Said) { // lines from before the loss
		<-worker.Said
	}
	for range 2 {
		require.Equal(t, "renewed", <-worker.Said)
	}
	st, err := l.Inspect(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, lock.Token(), st.Token, "renewed by the worker")
	_, err = l.TryLock(t.Context(), "k")
	require.ErrorIs(t, err, redlatch.ErrNotAcquired)

	require.NoError(t, worker.In.Close()) // the work is done
	var last string
	for line := range worker.Said {
		last = line
	}
	require.Equal(t, "ended <nil>", last)
	worker.Wait(t)
	next := locktest.MustLock(t, l, "k")
	require.Greater(t, next.Fence(), adopted)
	require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrLost)
	require.NoError(t, next.Unlock(t.Context()), "left alone by the Unlock of the first handle")
}

// beWorker is the other process. Its work lasts until its input ends.
func beWorker(t *testing.T, addr string) {
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: addr})
	l := locktest.SetNXPX(t, client, redlatch.WithTTL(3*time.Second), redlatch.WithHooks(redlatch.Hooks{
		Renewed: func(redlatch.Event) { locktest.Say("renewed") },
	}))
	input := bufio.NewReader(os.Stdin)
	token, err := input.ReadString('\n')
	require.NoError(t, err)
	lock, err := l.Adopt(t.Context(), "k", strings.TrimSuffix(token, "\n"))
	require.NoError(t, err)
	locktest.Say("has fence", lock.Fence())
	_, _ = input.ReadString('\n')
	require.NoError(t, lock.Err())
	locktest.Say("ended", lock.Unlock(t.Context()))
}
