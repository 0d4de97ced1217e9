package redlatchgocron

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/redlatchtest"
)

// TestIsLeaderJudgesTheLockAtEachCall: IsLeader notices the loss by itself. No goroutine runs here
// that could notice it.
func TestIsLeaderJudgesTheLockAtEachCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lock, err := redlatchtest.NewLocker(t).TryLock(t.Context(), "leader", redlatch.WithTTL(time.Second), redlatch.WithoutRenewal())
		require.NoError(t, err)
		e := &Elector{lock: lock}
		require.NoError(t, e.IsLeader(t.Context()))
		time.Sleep(time.Until(lock.Until()))
		require.ErrorIs(t, e.IsLeader(t.Context()), redlatch.ErrLost)
	})
}

// TestClosedElectorNeverLeads: it does not lead once Close was called, even if its lock is still
// valid and not released.
func TestClosedElectorNeverLeads(t *testing.T) {
	lock, err := redlatchtest.NewLocker(t).TryLock(t.Context(), "leader")
	require.NoError(t, err)
	ended := make(chan struct{})
	e := &Elector{lock: lock, ended: ended, cancel: func() { close(ended) }}
	require.NoError(t, e.Close())
	require.NoError(t, lock.Err())
	require.ErrorIs(t, e.IsLeader(t.Context()), ErrNotLeader)
}
