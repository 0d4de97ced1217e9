package behavior_test

import (
	"context"
	"fmt"
	"math"
	"runtime/debug"
	"strconv"
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

// BenchmarkPairWithoutHooks measures a lock and its unlock with each way to have no hooks.
func BenchmarkPairWithoutHooks(b *testing.B) {
	for name, opts := range noHooks {
		b.Run(name, func(b *testing.B) {
			p := pair(b, opts...)
			b.ReportAllocs()
			for b.Loop() {
				p()
			}
		})
	}
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

// BenchmarkPair measures a lock and its unlock, with a key for each goroutine. For comparison it measures
// the two commands that a program would write by hand.
func BenchmarkPair(b *testing.B) {
	s := redistest.Shared(b)
	ctx := context.Background()
	compareAndDelete := redis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)
	for _, goroutines := range []int{1, 16, 256} {
		pairs := func(name string, pair func(key string) error) {
			b.Run(fmt.Sprintf("%s/goroutines=%d", name, goroutines), func(b *testing.B) {
				b.ReportAllocs()
				var left atomic.Int64
				left.Store(int64(b.N))
				var wg sync.WaitGroup
				for g := range goroutines {
					key := "pair" + strconv.Itoa(g)
					wg.Go(func() {
						for left.Add(-1) >= 0 {
							if err := pair(key); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
			})
		}
		client := s.Client(b)
		pairs("raw", func(key string) error {
			token := uuid.NewString()
			if err := client.SetNX(ctx, key, token, 10*time.Second).Err(); err != nil {
				return err
			}
			return compareAndDelete.Run(ctx, client, []string{key}, token).Err()
		})
		l, err := redlatch.NewSetNXPX(client)
		if err != nil {
			b.Fatal(err)
		}
		pairs("redlatch", func(key string) error {
			lock, err := l.TryLock(ctx, key)
			if err != nil {
				return err
			}
			return lock.Unlock(ctx)
		})
	}
}

// BenchmarkHotKey hands one key from client to client. An operation is one grant. Besides the time, it
// reports Jain's index of fairness over the goroutines, the longest wait, and the commands for each grant.
// The index is 1 if all goroutines get the same number of grants.
func BenchmarkHotKey(b *testing.B) {
	for _, shape := range []struct{ clients, goroutines int }{{8, 4}, {32, 4}, {64, 1}, {256, 4}} {
		b.Run(fmt.Sprintf("%dx%d", shape.clients, shape.goroutines), func(b *testing.B) {
			s := redistest.Start(b)
			ctx := context.Background()
			var lockers []redlatch.Locker
			for range shape.clients {
				l, err := redlatch.NewSetNXPX(s.Client(b))
				if err != nil {
					b.Fatal(err)
				}
				lockers = append(lockers, l)
			}
			admin := s.Client(b)
			served := make([]int64, shape.clients*shape.goroutines)
			var left, longest atomic.Int64
			left.Store(int64(b.N))
			before := locktest.ClientCommands(b, admin)
			b.ResetTimer()
			var wg sync.WaitGroup
			for i, l := range lockers {
				for g := range shape.goroutines {
					wg.Go(func() {
						for left.Add(-1) >= 0 {
							begin := time.Now()
							lock, err := l.Lock(ctx, "hot")
							if err != nil {
								b.Error(err)
								return
							}
							longest.Store(max(longest.Load(), int64(time.Since(begin))))
							served[i*shape.goroutines+g]++
							if err := lock.Unlock(ctx); err != nil {
								b.Error(err)
							}
						}
					})
				}
			}
			wg.Wait()
			b.StopTimer()
			var sum, squares float64
			for _, n := range served {
				sum += float64(n)
				squares += float64(n) * float64(n)
			}
			b.ReportMetric(sum*sum/squares/float64(len(served)), "jain")
			b.ReportMetric(float64(longest.Load())/1e6, "longest-ms")
			b.ReportMetric((locktest.ClientCommands(b, admin)-before)/float64(b.N), "commands/op")
		})
	}
}
