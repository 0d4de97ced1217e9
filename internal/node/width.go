package node

import (
	"math"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
)

// A width says how many couriers are of use. While a round trip takes hardly longer than the work
// that it makes, a few suffice, and calls that wait for one make a batch. The longer the way, or the
// line before Redis, the more couriers may be on it at once: else a call waits for most of a round
// trip until one is back.
//
//	couriers = the least, over batches of the last one to two seconds, of
//	           (duration − 15 µs a call) / 45 µs
//
// The least, since a busy machine delays many batches, but not each.
type width struct {
	began         clock.Mono // of newer, which has a second at most
	newer, before returned
}

// returned says what batches came back in some time.
type returned struct {
	batches int
	least   float64 // ratio
}

const (
	batchWork = 45 * time.Microsecond // of a batch, for this machine and for Redis
	callWork  = 15 * time.Microsecond // of each call in it

	fewBatches = 20 // they say nothing: the first ones open connections
)

// observe notes a batch that came back at now.
func (w *width) observe(now clock.Mono, took time.Duration, calls int) {
	switch age := now.Sub(w.began); {
	case age >= 2*time.Second:
		w.began, w.newer, w.before = now, returned{}, returned{}
	case age >= time.Second:
		w.began, w.newer, w.before = now, returned{}, w.newer
	}
	ratio := max(float64(took-time.Duration(calls)*callWork)/float64(batchWork), 0)
	if w.newer.batches == 0 || ratio < w.newer.least {
		w.newer.least = ratio
	}
	w.newer.batches++
}

// couriers returns how many are of use; 0 if too little is known.
func (w *width) couriers() int {
	if w.newer.batches+w.before.batches < fewBatches {
		return 0
	}
	least := math.Inf(1)
	for _, s := range []returned{w.newer, w.before} {
		if s.batches > 0 {
			least = min(least, s.least)
		}
	}
	return int(least)
}
