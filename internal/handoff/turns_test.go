package handoff

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestTurnsAreForgotten is rule 17: nothing is left of a key once all callers that waited for its turn have given up
// or had it.
func TestTurnsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turns Turns
		ok, _ := turns.Take(t.Context(), "k", nil)
		require.True(t, ok)
		ctx, cancel := context.WithCancel(t.Context())
		gaveUp := make(chan error)
		go func() { // ends with ctx
			ok, last := turns.Take(ctx, "k", errHeld)
			if ok {
				last = nil
			}
			gaveUp <- last
		}()
		synctest.Wait()
		cancel()
		require.Same(t, errHeld, <-gaveUp)
		require.Len(t, turns.keys, 1)
		turns.Give("k")
		require.Empty(t, turns.keys)
	})
}

// TestReleasedKeyIsYieldedAfterEachRelease is rule 32: the newest release counts, also soon after another one.
func TestReleasedKeyIsYieldedAfterEachRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turns Turns
		turns.Released("k", 100*time.Millisecond)
		time.Sleep(60 * time.Millisecond)
		turns.Released("k", 100*time.Millisecond)
		time.Sleep(60 * time.Millisecond)
		require.True(t, turns.JustServed("k"))
		require.False(t, turns.JustServed("l"))
		time.Sleep(60 * time.Millisecond)
		require.False(t, turns.JustServed("k"))
		require.Empty(t, turns.served)
	})
}
