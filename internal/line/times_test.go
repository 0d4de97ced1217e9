package line

import (
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
)

const ms = time.Millisecond

func TestTimes(t *testing.T) {
	for _, c := range []struct {
		name      string
		got, want time.Duration
	}{
		{"the first look of the first in the queue", pause(true, 0, 0, 0), 250 * ms},
		{"its second look", pause(true, 0, 1, 0), 500 * ms},
		{"its later looks", pause(true, 0, 100, 0), 1000 * ms},
		{"its jitter", pause(true, 0, 2, 0.5), 1125 * ms},
		{"it looks when the lease can have ended", pause(true, 248*ms, 0, 0), 249 * ms},
		{"but not later for that", pause(true, 300*ms, 0, 0), 250 * ms},
		{"the first look of the others", pause(false, 0, 0, 0), 1000 * ms},
		{"their second look", pause(false, 0, 1, 0), 2000 * ms},
		{"their later looks, and their jitter", pause(false, 0, 100, 0.5), 2250 * ms},
		{"they look no more often than the first", pause(false, 10*ms, 0, 0), 250 * ms},
		{"they leave the first a head start", pause(false, 500*ms, 0, 0), 600 * ms},
		{"but look no later for that", pause(false, 5000*ms, 0, 0), 1000 * ms},

		{"the first poll", poll(1, 8*ms, 100*ms, 0, 0), 8 * ms},
		{"the second poll", poll(2, 8*ms, 100*ms, 0, 0), 16 * ms},
		{"half of a pause is random", poll(3, 8*ms, 100*ms, 0, 0.5), 24 * ms},
		{"the longest pause", poll(1000, 8*ms, 100*ms, 0, 0), 100 * ms},
		{"a poll when the lease can have ended", poll(1000, 8*ms, 100*ms, 20*ms, 0), 21 * ms},
		{"but not later for that", poll(1, 8*ms, 100*ms, 20*ms, 0), 8 * ms},

		{"a pause without a queue", eager(0, 0, 8*ms, 100*ms), 100 * ms},
		{"when the key has changed hands", eager(4, 15, 8*ms, 100*ms), 50 * ms},
		{"the shortest of these", eager(1000, 0, 8*ms, 100*ms), 8 * ms},
		{"while it stays with one holder", eager(96, 32, ms, 100*ms), 16 * ms},
		{"the longest of these", eager(4, 32, 8*ms, 100*ms), 100 * ms},
		{"a key that stays for ever", eager(1000, 1000, ms, 100*ms), 16 * ms},

		{"the first rest", doubled(0, 8*ms, 128*ms), 8 * ms},
		{"a rest after a refusal", doubled(10*ms, 8*ms, 128*ms), 20 * ms},
		{"the longest rest", doubled(100*ms, 8*ms, 128*ms), 128 * ms},
		{"a rest after a grant", eased(100*ms, 8*ms), 50 * ms},
		{"the shortest rest", eased(0, 8*ms), 4 * ms},
	} {
		if c.got != c.want {
			t.Errorf("%s: %v, not %v", c.name, c.got, c.want)
		}
	}
	for _, c := range []struct {
		filled, patience, took, atRest time.Duration
		want                           bool
	}{
		{0, 49 * ms, 6 * ms, ms, true},
		{0, 50 * ms, 6 * ms, ms, false},
		{49 * ms, 0, 6 * ms, ms, true},
		{50 * ms, 0, 6 * ms, ms, false},
		{0, -ms, 6 * ms, 6 * ms, false}, // at rest, nothing is lost but an entry
		{0, 0, 0, 0, false},
	} {
		if got := hurried(c.filled, c.patience, c.took, c.atRest); got != c.want {
			t.Errorf("hurried(%v, %v, %v, %v) = %v", c.filled, c.patience, c.took, c.atRest, got)
		}
	}
}

// TestPulse: an attempt without an answer would have taken longer, so it does not lower the
// average. The least duration is that of the last 10 to 20 s.
func TestPulse(t *testing.T) {
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
		p.Observe(clock.Mono(1).Add(s.after), s.took, s.answered)
		if took, least := p.Times(); took != s.average || least != s.least {
			t.Errorf("after %v: %v and %v, not %v and %v", s.after, took, least, s.average, s.least)
		}
	}
}
