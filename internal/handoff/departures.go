package handoff

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
	giveBack func() // what is handed over later
	at       time.Time
}

// departedFor is about how long a departure is kept, and mostDeparted how many are kept.
const (
	departedFor  = 10 * time.Minute
	mostDeparted = 10_000
)

func (d *departures) add(entry string, giveBack func()) {
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
		d.byEntry[entry] = departure{giveBack, now}
	}
}

// take removes entry, which has left the queue or was handed the lock. It returns its giveBack, or nil if there is
// none.
func (d *departures) take(entry string) (giveBack func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	giveBack = d.byEntry[entry].giveBack
	delete(d.byEntry, entry)
	return giveBack
}
