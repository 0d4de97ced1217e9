package line

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestPulse: an attempt without an answer would have taken longer, so it does not lower the average. The least duration is that of
// the last 10 to 20 s.
func TestPulse(t *testing.T) {
	const ms = time.Millisecond
	var p Pulse
	for _, s := range []struct {
		after, took time.Duration
		answered    bool
		average     time.Duration
		least       time.Duration
	}{
		{0, 80 * ms, true, 10 * ms, 80 * ms},
		{0, 2 * ms, false, 10 * ms, 80 * ms},
		{0, 18 * ms, false, 11 * ms, 80 * ms},
		{0, 3 * ms, true, 10 * ms, 3 * ms},
		{pulseSpan + 1, 10 * ms, true, 10 * ms, 3 * ms},
		{2*pulseSpan + 1, 10 * ms, true, 10 * ms, 3 * ms},
		{2*pulseSpan + 2, 10 * ms, true, 10 * ms, 10 * ms},
	} {
		p.Observe(1+s.after, s.took, s.answered)
		took, least := p.Times()
		require.Equal(t, s.average, took)
		require.Equal(t, s.least, least)
	}
}
