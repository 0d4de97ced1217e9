package behavior_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
)

// TestFollowersAreToldWhoLeads: Waiting names the first holder that a call waits for, and Moved
// each one that it finds later, once.
func TestFollowersAreToldWhoLeads(t *testing.T) {
	for name, opts := range map[string][]redlatch.Option{"queue": nil, "polls": {redlatch.WithoutQueue()}} {
		t.Run(name, func(t *testing.T) {
			kinds := map[string]maker{"SetNXPX": everyStrategy["SetNXPX"], "Redlock": everyStrategy["Redlock"]}
			onEvery(t, kinds, func(t *testing.T, w *world) {
				var waits, moves heard
				holder := func(e redlatch.Event) string {
					var held *redlatch.HeldError
					require.True(t, errors.As(e.Err, &held), e.Err)
					require.Equal(t, []any{"k", "follower"}, []any{e.Key, e.Owner})
					return held.Owner
				}
				lock := mustLock(t, w.locker(t, redlatch.WithOwner("leader 0")), "k")
				follower := w.locker(t, append(opts, redlatch.WithOwner("follower"), redlatch.WithHooks(redlatch.Hooks{Waiting: waits.add, Moved: moves.add}))...)
				got := make(chan *redlatch.Lock, 1)
				locking(t, got, follower, "k")
				time.Sleep(3 * time.Second)
				require.Equal(t, "leader 0", holder(waits.all()[0]))
				for i := 1; i <= 3; i++ {
					next, token := w.locker(t, redlatch.WithOwner(fmt.Sprint("leader ", i))), string(lock.Token())
					require.NoError(t, w.Direct.Set(t.Context(), "k", fmt.Sprint("leader ", i, "/", token[len(token)-36:]), time.Minute).Err())
					var err error
					lock, err = next.Adopt(t.Context(), "k", redlatch.Token(w.Direct.Get(t.Context(), "k").Val()))
					require.NoError(t, err)
					time.Sleep(5 * time.Second) // of the bubble
					require.Len(t, moves.all(), i, "once")
					require.Equal(t, fmt.Sprint("leader ", i), holder(moves.all()[i-1]))
				}
				require.Len(t, waits.all(), 1)
				require.NoError(t, lock.Unlock(t.Context()))
				require.NoError(t, await(t, got, "its turn").Unlock(t.Context()))
				require.Len(t, moves.all(), 3)
			})
		})
	}
}

// TestMovedNeedsNoOtherHook: the first holder is not reported by it, and the next one is.
func TestMovedNeedsNoOtherHook(t *testing.T) {
	kinds := map[string]maker{"SetNXPX": everyStrategy["SetNXPX"], "Redlock": everyStrategy["Redlock"]}
	onEvery(t, kinds, func(t *testing.T, w *world) {
		var moves heard
		lock := mustLock(t, w.locker(t, redlatch.WithOwner("first")), "k", redlatch.WithoutRenewal(), longTTL)
		got := make(chan *redlatch.Lock, 1)
		locking(t, got, w.locker(t, redlatch.WithHooks(redlatch.Hooks{Moved: moves.add})), "k")
		time.Sleep(5 * time.Second) // of the bubble
		require.Empty(t, moves.all())
		token := string(lock.Token())
		require.NoError(t, w.Direct.Set(t.Context(), "k", "second/"+token[len(token)-36:], time.Minute).Err())
		time.Sleep(5 * time.Second)
		require.Len(t, moves.all(), 1)
		var held *redlatch.HeldError
		require.ErrorAs(t, moves.all()[0].Err, &held)
		require.Equal(t, "second", held.Owner)
		require.NoError(t, await(t, got, "the end of the second").Unlock(t.Context()))
	})
}

// TestRefusalIsReportedThoughTheCallIsServedMeanwhile: while the hook Waiting runs, the key gets another holder, and then comes
// to the call.
func TestRefusalIsReportedThoughTheCallIsServedMeanwhile(t *testing.T) {
	onEvery(t, map[string]maker{"SetNXPX": everyStrategy["SetNXPX"]}, func(t *testing.T, w *world) {
		for i := range 10 { // which of the two it learns first is chance
			first := mustLock(t, w.locker(t), "k", redlatch.WithoutRenewal())
			var moves heard
			got := make(chan *redlatch.Lock, 1)
			waiting := func(context.Context, redlatch.Event) { time.Sleep(time.Minute) } // of the bubble
			locking(t, got, w.locker(t, redlatch.WithHooks(redlatch.Hooks{Waiting: waiting, Moved: moves.add})), "k")
			time.Sleep(time.Second)
			token := string(first.Token())
			require.NoError(t, w.Direct.Set(t.Context(), "k", "second/"+token[len(token)-36:], 10*time.Second).Err())
			lock := await(t, got, "the end of the second")
			require.Len(t, moves.all(), 1, "round %d", i)
			require.NoError(t, lock.Unlock(t.Context()))
		}
	})
}
