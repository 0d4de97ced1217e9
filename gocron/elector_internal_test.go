package redlatchgocron

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/redlatchtest"
)

// TestIsLeaderJudgesTheLockAtEachCall: it needs no goroutine that has noticed the loss: none runs here. Rules 9 and 10.
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

// TestClosedElectorNeverLeads: from the call of Close on, also while the lock is trusted and not given back yet.
func TestClosedElectorNeverLeads(t *testing.T) {
	lock, err := redlatchtest.NewLocker(t).TryLock(t.Context(), "leader")
	require.NoError(t, err)
	ended := make(chan struct{})
	e := &Elector{lock: lock, ended: ended, cancel: func() { close(ended) }}
	require.NoError(t, e.Close())
	require.NoError(t, lock.Err())
	require.ErrorIs(t, e.IsLeader(t.Context()), ErrNotLeader)
}
