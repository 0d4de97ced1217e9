package redlatch

import (
	"maps"
	"sync"
	"time"
)

// departures remembers the waiters that gave up and whose entry may still be in the queue, since Redis has not
// confirmed that it left. They may be handed a lock that nobody wants.
type departures struct {
	mu      sync.Mutex // guards the fields below
	byEntry map[string]departure
	swept   time.Time // when the oldest were forgotten
}

// A departure is an attempt that was given up.
type departure struct {
	attempt *attempt
	at      time.Time
}

// departedFor is how long a departure is remembered, roughly, and mostDeparted how many are.
const (
	departedFor  = 10 * time.Minute
	mostDeparted = 10_000
)

// add remembers that a is about to take entry out of the queue.
func (d *departures) add(a *attempt, entry string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.byEntry == nil {
		d.byEntry = make(map[string]departure)
	}
	now := time.Now()
	if now.Sub(d.swept) > departedFor/10 {
		d.swept = now
		maps.DeleteFunc(d.byEntry, func(_ string, old departure) bool { return now.Sub(old.at) > departedFor })
	}
	if len(d.byEntry) < mostDeparted {
		d.byEntry[entry] = departure{a, now}
	}
}

// take forgets an entry, which Redis has confirmed to be out of the queue or which was handed the lock. It
// returns the attempt, or nil where the entry is none of these.
func (d *departures) take(entry string) *attempt {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := d.byEntry[entry].attempt
	delete(d.byEntry, entry)
	return a
}
