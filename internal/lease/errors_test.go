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
	for why, c := range map[Why]struct {
		trouble error
		text    string
	}{
		Fixed:   {nil, "redlatch: lock lost: expired"},
		Failing: {&rediserr.NoReply{Within: time.Second}, "redlatch: lock lost: expired: not extended since 03:04:05.006: no reply within 1s"},
		Silent:  {nil, "redlatch: lock lost: expired: no reply from Redis since 03:04:05.006"},
		Dropped: {nil, "redlatch: lock lost: expired: the handle was dropped without Unlock"},
		Late:    {nil, "redlatch: lock lost: expired: the process was too late to renew it"},
		MaxHold: {nil, "redlatch: lock lost: held for as long as WithMaxHold allows"},
	} {
		err := endError(why, at, c.trouble)
		require.EqualError(t, err, c.text)
		require.ErrorIs(t, err, ErrLost)
	}
	taken := errors.New("taken")
	require.Equal(t, taken, endError(Gone, at, taken), "Redis has said why")
	released := endError(Unlocked, at, nil)
	require.Equal(t, ErrReleased, released)
	require.NotErrorIs(t, released, ErrLost)
}
