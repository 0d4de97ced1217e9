package node

import (
	"math"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
)

// A width says how many couriers are of use. While a trip takes hardly longer than the work that it
// makes, a few suffice, and calls that wait for one make a batch. The longer the way, or the line
// before Redis, the more couriers may be on it at once: else a call waits for most of a trip until
// one is back.
//
//	couriers = the least, over trips of the last one to two seconds, of
//	           duration / (100 µs + 10 µs a call)
//
// The least, since a busy machine delays many trips, but not each.
type width struct {
	began       clock.Mono // of the newer second
	newer, then second
}

// A second has the trips that came back in it.
type second struct {
	trips int
	least float64 // ratio
}

const (
	tripWork = 100 * time.Microsecond // of a trip, for this machine and for Redis
	callWork = 10 * time.Microsecond  // of each call on it

	fewTrips = 20 // they say nothing: the first ones open connections
)

// observe notes a trip that came back at now.
func (w *width) observe(now clock.Mono, took time.Duration, calls int) {
	switch age := now.Sub(w.began); {
	case age >= 2*time.Second:
		w.began, w.newer, w.then = now, second{}, second{}
	case age >= time.Second:
		w.began, w.newer, w.then = now, second{}, w.newer
	}
	ratio := float64(took) / float64(tripWork+time.Duration(calls)*callWork)
	if w.newer.trips == 0 || ratio < w.newer.least {
		w.newer.least = ratio
	}
	w.newer.trips++
}

// couriers returns how many are of use; 0 if too little is known.
func (w *width) couriers() int {
	if w.newer.trips+w.then.trips < fewTrips {
		return 0
	}
	least := math.Inf(1)
	for _, s := range []second{w.newer, w.then} {
		if s.trips > 0 {
			least = min(least, s.least)
		}
	}
	return int(least)
}
