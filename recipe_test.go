package redlatch_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/redlatchtest"
)

// TestHealthCheckNamesNoLeaderThatWasCutOff: the recipe names a leader only while it may lead. From
// the moment that another process can lead, and after the end of Lead, it does not.
func TestHealthCheckNamesNoLeaderThatWasCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locker := redlatchtest.NewLocker(t, redlatch.WithOwner("mine"))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var leader atomic.Value
		hooks := leaderHooks(&leader)
		require.Equal(t, nobodyKnown, leader.Load())
		ended := make(chan error, 1)
		go func() {
			ended <- redlatch.Lead(ctx, locker, "scheduler", func(ctx context.Context, _ *redlatch.Lock) error {
				<-ctx.Done()
				return nil
			}, redlatch.WithHooks(hooks))
		}()
		becomes := func(name string) {
			t.Helper()
			for begin := time.Now(); leader.Load() != name; time.Sleep(time.Millisecond) {
				require.Less(t, time.Since(begin), time.Minute, leader.Load())
			}
		}
		becomes("mine")

		locker.Disconnect()
		becomes(nobodyKnown)
		time.Sleep(time.Second) // the lock ends a little before its key
		locker.Hold("scheduler")
		for range 60 { // in the partition
			time.Sleep(time.Second)
			require.Equal(t, nobodyKnown, leader.Load())
		}
		locker.Reconnect()
		becomes("somebody else")
		locker.Free("scheduler")
		becomes("mine")
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
		require.Equal(t, nobodyKnown, leader.Load())
	})
}
