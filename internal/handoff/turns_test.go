package handoff

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// TestTurnsAreForgotten is rule 17: nothing is left of a key when those that waited for its turn have given up or had it.
func TestTurnsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turns Turns
		require.True(t, turns.Take(t.Context(), "k"))
		ctx, cancel := context.WithCancel(t.Context())
		gaveUp := make(chan bool)
		go func() { gaveUp <- !turns.Take(ctx, "k") }() // ends with ctx
		synctest.Wait()
		cancel()
		require.True(t, <-gaveUp)
		require.Len(t, turns.keys, 1)
		turns.Give("k")
		require.Empty(t, turns.keys)
	})
}
