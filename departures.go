package redlatch

import (
	"maps"
	"sync"
	"time"
)

// departures has the waiters that gave up before Redis confirmed that their entry left the queue. They may still be
// handed a lock.
type departures struct {
	mu      sync.Mutex // guards the fields below
	byEntry map[string]departure
	swept   time.Time // when expired ones were last removed
}

type departure struct {
	attempt *attempt // that was given up
	at      time.Time
}

// departedFor is about how long a departure is kept, and mostDeparted how many are kept.
const (
	departedFor  = 10 * time.Minute
	mostDeparted = 10_000
)

// add notes that a gives up entry.
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

// take removes entry, which has left the queue or was handed the lock. It returns its attempt, or nil if there is
// none.
func (d *departures) take(entry string) *attempt {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := d.byEntry[entry].attempt
	delete(d.byEntry, entry)
	return a
}
