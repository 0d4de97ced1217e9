package lease

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/clock"
)

// TestAnExtensionKnowsWhetherTheOneBeforeFailed, so that a log has the first of a row of failures. The
// first extension has none before it.
func TestAnExtensionKnowsWhetherTheOneBeforeFailed(t *testing.T) {
	at := func(d time.Duration) clock.Instant {
		return clock.Instant{Mono: clock.Mono(time.Hour).Add(d), Wall: time.Hour + d}
	}
	const ttl = 10 * time.Second
	l := core{Config: &Config{TTL: ttl, Asked: ttl, Timeout: time.Second, Renews: true}}
	l.begin(at(0), at(0), clock.Validity(ttl, 0), 0)
	for i, c := range []struct {
		err   error
		again bool
	}{
		{errors.New("away"), false}, {errors.New("away"), true}, {nil, true}, {nil, false}, {errors.New("away"), false},
	} {
		now := at(time.Duration(i) * time.Second)
		x := l.send(0, 0, now)
		require.True(t, l.extended(&x, now, c.err, false, 0))
		require.Equal(t, c.again, x.Again, "%d", i)
	}
}
