package behavior_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/race"
	"github.com/redlatch/redlatch/internal/redistest"
)

// TestPairAllocatesLittle: a lock and its unlock, with renewal and fence, make at most 12 allocations more than the two commands that
// a program would write by hand. Hooks that are not set make none.
func TestPairAllocatesLittle(t *testing.T) {
	if race.Detector() {
		t.Skip("the race detector allocates too")
	}
	client := redistest.Shared(t).Client(t)
	ctx := context.Background()
	key := t.Name()
	compareAndDelete := redis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)
	byHand := testing.AllocsPerRun(2000, func() {
		token := uuid.NewString()
		_ = client.SetNX(ctx, key, token, 10*time.Second).Err()
		_ = compareAndDelete.Run(ctx, client, []string{key}, token).Err()
	})
	for name, hooks := range map[string]redlatch.Hooks{"none": {}, "joined": redlatch.JoinHooks(redlatch.Hooks{}, redlatch.Hooks{})} {
		l := locktest.SetNXPX(t, client, redlatch.WithHooks(hooks))
		require.LessOrEqual(t, testing.AllocsPerRun(2000, func() {
			lock, err := l.TryLock(ctx, key)
			if err == nil {
				err = lock.Unlock(ctx)
			}
			if err != nil {
				t.Error(err)
			}
		}), byHand+12, name)
	}
}

// TestGrantCostsTwoCommands: a lock and its release cost a command each, also with LegacySetNX for a key that has expired, and a
// refusal one. On a quorum that holds for each node.
func TestGrantCostsTwoCommands(t *testing.T) {
	onEvery(t, everyStrategy, func(t *testing.T, w *world) {
		var sent atomic.Int64
		client := w.Client(t)
		l := w.over(t, client)
		lock := mustLock(t, l, "k")
		require.NoError(t, lock.Extend(t.Context(), time.Minute))
		adopted, err := l.Adopt(t.Context(), "k", lock.Token())
		require.NoError(t, err)
		_, err = l.Inspect(t.Context(), "k")
		require.NoError(t, err)
		require.NoError(t, adopted.Unlock(t.Context())) // the connection is open now, and the scripts are loaded
		client.AddHook(locktest.Count(&sent))
		for range 10 {
			require.NoError(t, mustLock(t, l, "k").Unlock(t.Context()))
			require.Equal(t, int64(2), sent.Swap(0))
		}
		if w.name == "LegacySetNX" {
			require.NoError(t, w.Direct.Set(t.Context(), "k", 1, 0).Err())
		}
		lock = mustLock(t, l, "k")
		_, err = l.TryLock(t.Context(), "k")
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		_, err = l.Inspect(t.Context(), "k")
		require.NoError(t, err)
		require.NoError(t, lock.Extend(t.Context(), time.Minute))
		require.NoError(t, lock.Unlock(t.Context()))
		require.LessOrEqual(t, sent.Load(), int64(5))
	})
}

// TestWaitingIsCheap: a line costs a command each second or two, however many wait in it, and renewals of the holder wake nobody.
func TestWaitingIsCheap(t *testing.T) {
	onEvery(t, queues, func(t *testing.T, w *world) {
		const processes, waiters = 10, 10
		lock := mustLock(t, w.locker(t), "k")
		var sent atomic.Int64
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range processes {
			client := w.Client(t)
			client.AddHook(locktest.Count(&sent))
			l := w.over(t, client)
			for range waiters {
				wg.Go(func() { _, _ = l.Lock(ctx, "k") })
			}
		}
		time.Sleep(10 * time.Second) // the first looks are over
		sent.Store(0)
		time.Sleep(time.Minute)
		require.LessOrEqual(t, sent.Load(), int64(60*processes))
		require.Positive(t, sent.Load())
		cancel()
		wg.Wait()
		require.NoError(t, lock.Unlock(t.Context()))
	})
}
