package line

import (
	"testing"
	"time"
)

const ms = time.Millisecond

func TestLooksInTheQueue(t *testing.T) {
	for _, c := range []struct {
		first  bool
		left   time.Duration
		looks  int
		random float64
		want   time.Duration
	}{
		{true, 0, 0, 0, 250 * ms},
		{true, 0, 1, 0, 500 * ms},
		{true, 0, 2, 0, 1000 * ms},
		{true, 0, 100, 0, 1000 * ms},
		{true, 0, 2, 0.5, 1125 * ms},
		{true, 100 * ms, 0, 0, 101 * ms},
		{true, 248 * ms, 0, 0, 249 * ms},
		{true, 300 * ms, 0, 0, 250 * ms},
		{false, 0, 0, 0, 1000 * ms},
		{false, 0, 1, 0, 2000 * ms},
		{false, 0, 100, 0.5, 2250 * ms},
		{false, 10 * ms, 0, 0, 250 * ms}, // it leaves the first a head start, and looks no more often
		{false, 500 * ms, 0, 0, 600 * ms},
		{false, 5000 * ms, 0, 0, 1000 * ms},
	} {
		if got := pause(c.first, c.left, c.looks, c.random); got != c.want {
			t.Errorf("pause(%v, %v, %v, %v) = %v, not %v", c.first, c.left, c.looks, c.random, got, c.want)
		}
	}
}

func TestPollsDouble(t *testing.T) {
	for _, c := range []struct {
		attempts int
		left     time.Duration
		random   float64
		want     time.Duration
	}{
		{1, 0, 0, 8 * ms},
		{2, 0, 0, 16 * ms},
		{3, 0, 0.5, 24 * ms},
		{5, 0, 0, 100 * ms},
		{1000, 0, 0, 100 * ms},
		{1000, 0, 0.5, 75 * ms},
		{1000, 20 * ms, 0, 21 * ms},
		{1, 20 * ms, 0, 8 * ms},
	} {
		if got := poll(c.attempts, 8*ms, 100*ms, c.left, c.random); got != c.want {
			t.Errorf("poll(%v, 8 ms, 100 ms, %v, %v) = %v, not %v", c.attempts, c.left, c.random, got, c.want)
		}
	}
}

func TestRests(t *testing.T) {
	for _, c := range []struct{ got, want time.Duration }{
		{doubled(0, 8*ms, 128*ms), 8 * ms},
		{doubled(10*ms, 8*ms, 128*ms), 20 * ms},
		{doubled(100*ms, 8*ms, 128*ms), 128 * ms},
		{eased(0, 8*ms), 4 * ms},
		{eased(100*ms, 8*ms), 50 * ms},
		{halfRandom(10*ms, 0), 10 * ms},
		{halfRandom(10*ms, 0.5), 7500 * time.Microsecond},
	} {
		if c.got != c.want {
			t.Errorf("%v, not %v", c.got, c.want)
		}
	}
}

func TestHurried(t *testing.T) {
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
