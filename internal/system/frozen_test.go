package system_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

const (
	frozenWaiters = 20
	frozenTTL     = 1500 * time.Millisecond
)

// TestFrozenProcessCostsOneTTL: a process with 20 waiters on a key is stopped, and Redis still counts it as listening. It costs
// others a claim if it is next in the queue, and one TTL more if it also holds the lock, whatever the number of its waiters. When
// it continues, all its waiters are served.
func TestFrozenProcessCostsOneTTL(t *testing.T) {
	t.Parallel()
	if part := locktest.Part(); part != "" {
		addrs, holds := strings.CutPrefix(part, "holder of ")
		beFrozen(t, addrs, holds)
		return
	}
	_, masters := startCluster(t)
	s := redistest.StartTCP(t)
	for name, addrs := range map[string][]string{"one server": {s.Addr()}, "a cluster": masters} {
		for _, holds := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, it holds: %v", name, holds), func(t *testing.T) {
				t.Parallel()
				freeze(t, addrs, holds)
			})
		}
	}
}

// reach returns a Locker on a server, or on a cluster, with a client of its own. Cases share no key.
func reach(t *testing.T, addrs []string, holds bool) redlatch.Locker {
	client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: addrs})
	t.Cleanup(func() { _ = client.Close() })
	return locktest.SetNXPX(t, client, redlatch.WithTTL(frozenTTL), redlatch.WithKeyPrefix(fmt.Sprint(holds, ":")))
}

func freeze(t *testing.T, addrs []string, holds bool) {
	ctx := t.Context()
	l := reach(t, addrs, holds)
	locktest.MustLock(t, l, "warm").Unlock(ctx) //nolint:errcheck // it loads the scripts
	var holder *redlatch.Lock
	part := strings.Join(addrs, ",")
	if holds {
		part = "holder of " + part
	} else {
		holder = locktest.MustLock(t, l, "k")
	}
	child := locktest.Start(t, part)
	require.Equal(t, "listens", <-child.Said)
	locktest.Eventually(t, "the line of the child queues", func() bool {
		st, err := l.Inspect(ctx, "k")
		return err == nil && st.Waiters == 1
	})
	child.Freeze(t)

	begin, cost := time.Now(), frozenTTL
	if holds {
		cost *= 2
	} else {
		require.NoError(t, holder.Unlock(ctx))
	}
	const others, rounds = 3, 20
	var wg sync.WaitGroup
	for range others {
		mine := reach(t, addrs, holds)
		wg.Go(func() {
			for range rounds {
				lock, err := mine.Lock(ctx, "k")
				if err == nil {
					err = lock.Unlock(ctx)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	took := time.Since(begin)
	t.Logf("%d grants to others took %v", others*rounds, took)
	require.Less(t, took, cost+2*time.Second)

	child.Continue(t)
	for range frozenWaiters {
		require.Equal(t, "served <nil>", <-child.Said)
	}
	child.Wait(t)
}

// beFrozen is the process that is stopped while its waiters queue.
func beFrozen(t *testing.T, addrs string, holds bool) {
	listens := make(chan struct{})
	var once sync.Once
	l := reach(t, strings.Split(addrs, ","), holds)
	if holds {
		lock := locktest.MustLock(t, l, "k")
		defer runtime.KeepAlive(lock)
	}
	// The lock of another key is handed over first: from then on the process listens.
	other := locktest.MustLock(t, l, "other")
	var wg sync.WaitGroup
	wg.Go(func() {
		lock, err := l.Lock(t.Context(), "other")
		if err == nil {
			err = lock.Unlock(t.Context())
		}
		once.Do(func() { close(listens) })
		if err != nil {
			locktest.Say("other", err)
		}
	})
	var waiting sync.WaitGroup
	waiting.Add(frozenWaiters)
	waits := redlatch.WithHooks(redlatch.Hooks{Waiting: func(redlatch.Event) { waiting.Done() }})
	for range frozenWaiters {
		wg.Go(func() {
			lock, err := l.Lock(t.Context(), "k", waits)
			if err == nil {
				err = lock.Unlock(t.Context())
			}
			locktest.Say("served", err)
		})
	}
	locktest.Eventually(t, "a waiter of the other key queues", func() bool {
		st, err := l.Inspect(t.Context(), "other")
		return err == nil && st.Waiters == 1
	})
	if err := other.Unlock(t.Context()); err != nil {
		locktest.Say("other", err)
	}
	<-listens
	waiting.Wait()
	locktest.Say("listens")
	wg.Wait()
}
