package redlatch_test

import (
	"context"
	"math"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
)

// noHooks are the ways to have none: not to name them, and to leave all of them out.
var noHooks = map[string][]redlatch.Option{
	"unset":  nil,
	"nil":    {redlatch.WithHooks(redlatch.Hooks{})},
	"joined": {redlatch.WithHooks(redlatch.JoinHooks(redlatch.Hooks{}, redlatch.Hooks{}))},
}

// pair returns a lock and its unlock on a Redis in this process.
func pair(tb testing.TB, opts ...redlatch.Option) func() {
	tb.Helper()
	client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(tb).Addr()})
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

// TestHooksThatAreNotSetCostNoAllocation counts those of a lock and its unlock, the client and the
// server included. The least of several counts is without what else the program does. A hook that
// allocates once shows that the count would tell.
func TestHooksThatAreNotSetCostNoAllocation(t *testing.T) {
	if raceDetector() {
		t.Skip("pools forget at random under the race detector")
	}
	var kept *redlatch.Event
	pairs := map[string]func(){
		"set": pair(t, redlatch.WithHooks(redlatch.Hooks{Acquired: func(e redlatch.Event) { kept = &e }})),
	}
	for name, opts := range noHooks {
		pairs[name] = pair(t, opts...)
	}
	least := make(map[string]float64)
	for range 8 {
		for name, p := range pairs {
			n := testing.AllocsPerRun(50, p)
			if before, counted := least[name]; counted {
				n = math.Min(n, before)
			}
			least[name] = n
		}
	}
	require.NotNil(t, kept)
	require.Equal(t, least["unset"], least["nil"])
	require.Equal(t, least["unset"], least["joined"])
	require.Equal(t, least["unset"]+1, least["set"], "the hook that allocates")
}

// BenchmarkPairWithoutHooks is a lock and its unlock with the ways to have no hooks.
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
