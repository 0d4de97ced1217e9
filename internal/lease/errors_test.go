package lease

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/rediserr"
)

// TestErrorsSayWhyALeaseEnded, beginning with the name of the library, on one line.
func TestErrorsSayWhyALeaseEnded(t *testing.T) {
	t.Parallel()
	at := clock.MonoOf(time.Date(2026, 1, 2, 3, 4, 5, 65e5, time.UTC))
	for why, c := range map[ending]struct {
		trouble error
		text    string
	}{
		endFixed:   {nil, "redlatch: lock lost: expired"},
		endFailing: {&rediserr.NoReply{Within: time.Second}, "redlatch: lock lost: expired: not extended since 03:04:05.006: no reply within 1s"},
		endSilent:  {nil, "redlatch: lock lost: expired: no reply from Redis since 03:04:05.006"},
		endDropped: {nil, "redlatch: lock lost: expired: the handle was dropped without Unlock"},
		endLate:    {nil, "redlatch: lock lost: expired: the process was too late to renew it"},
		endMaxHold: {nil, "redlatch: lock lost: held for as long as WithMaxHold allows"},
	} {
		err := endError(why, at, c.trouble)
		require.EqualError(t, err, c.text)
		require.ErrorIs(t, err, ErrLost)
	}
	taken := errors.New("taken")
	require.Equal(t, taken, endError(endGone, at, taken), "Redis has said why")
	released := endError(endUnlocked, at, nil)
	require.Equal(t, ErrReleased, released)
	require.NotErrorIs(t, released, ErrLost)
}
