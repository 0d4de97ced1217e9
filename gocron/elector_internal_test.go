package redlatchgocron

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/redlatchtest"
)

// TestClosedElectorNeverLeads: it does not lead once Close was called, even if its lock is still
// valid and not released.
func TestClosedElectorNeverLeads(t *testing.T) {
	lock, err := redlatchtest.NewLocker(t).TryLock(t.Context(), "leader")
	require.NoError(t, err)
	ended := make(chan struct{})
	e := &Elector{lock: lock, election: new(redlatch.Election), ended: ended, cancel: func() { close(ended) }}
	require.NoError(t, e.Close())
	require.NoError(t, lock.Err())
	require.ErrorIs(t, e.IsLeader(t.Context()), ErrNotLeader)
}
