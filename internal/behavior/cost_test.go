package behavior_test

import (
	"context"
	"math"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// noHooks lists the ways to have no hooks: no option, empty Hooks, and empty Hooks that are joined.
var noHooks = map[string][]redlatch.Option{
	"unset":  nil,
	"nil":    {redlatch.WithHooks(redlatch.Hooks{})},
	"joined": {redlatch.WithHooks(redlatch.JoinHooks(redlatch.Hooks{}, redlatch.Hooks{}))},
}

// pair returns a function that locks and unlocks a key on a Redis in this process.
func pair(tb testing.TB, opts ...redlatch.Option) func() {
	tb.Helper()
	server := miniredis.RunT(tb)
	server.SetTime(time.Now()) // stops the clock: the floor of the fences, which allocates, is then set only once
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	tb.Cleanup(func() { _ = client.Close() })
	l, err := redlatch.NewSetNXPX(client, opts...)
	require.NoError(tb, err)
	ctx := context.Background()
	return func() {
		lock, err := l.TryLock(ctx, "k")
		if err == nil {
			err = lock.Unlock(ctx)
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
}

// TestHooksThatAreNotSetCostNoAllocation counts the allocations of a lock and its unlock, with those of the
// client and the server. It takes the least of several counts, since the rest of the program allocates too. A collection
// would empty pools, which then allocate again.
// A hook that allocates once shows that the test notices one allocation.
func TestHooksThatAreNotSetCostNoAllocation(t *testing.T) {
	if redistest.RaceDetector() {
		t.Skip("sync.Pool drops items at random under the race detector")
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	var kept *redlatch.Event
	pairs := map[string]func(){
		"set": pair(t, redlatch.WithHooks(redlatch.Hooks{Acquired: func(e redlatch.Event) { kept = &e }})),
	}
	for name, opts := range noHooks {
		pairs[name] = pair(t, opts...)
	}
	const pairsCounted = 50
	least := make(map[string]float64)
	for range 8 {
		for name, p := range pairs {
			n := testing.AllocsPerRun(1, func() {
				for range pairsCounted {
					p()
				}
			}) / pairsCounted
			if before, counted := least[name]; counted {
				n = math.Min(n, before)
			}
			least[name] = n
		}
	}
	require.NotNil(t, kept)
	require.InDelta(t, least["unset"], least["nil"], 0.4)
	require.InDelta(t, least["unset"], least["joined"], 0.4)
	require.InDelta(t, least["unset"]+1, least["set"], 0.4, "the hook that allocates")
}

// TestPairAllocatesLittle: a lock and its unlock, with renewal and fence, make at most 8 allocations more than
// the two commands that a program would write by hand.
func TestPairAllocatesLittle(t *testing.T) {
	if redistest.RaceDetector() {
		t.Skip("the race detector allocates too")
	}
	client := redistest.Shared(t).Client(t)
	ctx := context.Background()
	key := t.Name()
	l := locktest.SetNXPX(t, client)
	compareAndDelete := redis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)
	raw := testing.AllocsPerRun(2000, func() {
		token := uuid.NewString()
		_ = client.SetNX(ctx, key, token, 10*time.Second).Err()
		_ = compareAndDelete.Run(ctx, client, []string{key}, token).Err()
	})
	ours := testing.AllocsPerRun(2000, func() {
		lock, err := l.TryLock(ctx, key)
		if err == nil {
			err = lock.Unlock(ctx)
		}
		if err != nil {
			t.Error(err)
		}
	})
	require.LessOrEqual(t, ours, raw+8)
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
