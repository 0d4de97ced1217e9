package behavior_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
)

// TestHeldKeyBehindASlowLinkIsNoOutage: callers of a process wait for little longer than a round
// trip. Their errors say that the key is held.
func TestHeldKeyBehindASlowLinkIsNoOutage(t *testing.T) {
	onEvery(t, everyStrategy, func(t *testing.T, w *world) {
		lock := mustLock(t, w.locker(t), "k")
		l, link := w.linked(t, redlatch.WithOpTimeout(time.Second))
		require.NoError(t, mustLock(t, l, "warm").Unlock(t.Context()))
		link.delay(600 * time.Millisecond)
		var callers sync.WaitGroup
		for range 60 {
			callers.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second+rand.N(time.Second))
				defer cancel()
				_, err := l.Lock(ctx, "k")
				assert.ErrorIs(t, err, redlatch.ErrNotAcquired)
				assert.NotErrorIs(t, err, redlatch.ErrUnavailable)
			})
			time.Sleep(40 * time.Millisecond)
		}
		callers.Wait()
		require.NoError(t, lock.Unlock(t.Context()))
	})
}
