package redlatch_test

import (
	"context"
	"math"
	"runtime/debug"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
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
// client and the server. It takes the least of several counts, since the rest of the program allocates too.
// A hook that allocates once shows that the test notices one allocation.
func TestHooksThatAreNotSetCostNoAllocation(t *testing.T) {
	if raceDetector() {
		t.Skip("sync.Pool drops items at random under the race detector")
	}
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
	if raceDetector() {
		t.Skip("the race detector allocates too")
	}
	client := redistest.Shared(t).Client(t)
	ctx := context.Background()
	key := t.Name()
	l := newLocker(t, client)
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

// raceDetector reports whether this binary was built with -race.
func raceDetector() bool {
	info, ok := debug.ReadBuildInfo()
	for _, s := range info.Settings {
		if ok && s.Key == "-race" {
			return s.Value == "true"
		}
	}
	return false
}
