package redlatch

import (
	"context"
	"sync"
	"time"
)

// failedRenewals logs failed renewals. An outage fails all renewals of all locks, again and again:
// so it logs only the first of a lock until one succeeds, and one line in renewalLogEvery.
type failedRenewals struct {
	log func(ctx context.Context, e Event, others int)

	mu     sync.Mutex // guards the fields below
	recent bool       // a line was logged less than renewalLogEvery ago
	began  int        // locks whose renewals began to fail since that line
	newest Event      // of these
}

// renewalLogEvery is the least time between two lines about failed renewals.
const renewalLogEvery = time.Second

// add is the hook RenewFailed.
func (f *failedRenewals) add(ctx context.Context, e Event) {
	if e.again {
		return
	}
	f.mu.Lock()
	if f.recent {
		f.began, f.newest = f.began+1, e
		f.mu.Unlock()
		return
	}
	f.recent = true
	f.mu.Unlock()
	time.AfterFunc(renewalLogEvery, f.next) // it logs what has come by then, and ends
	f.log(ctx, e, 0)
}

// next logs what came since the line before, in one line.
func (f *failedRenewals) next() {
	f.mu.Lock()
	began, newest := f.began, f.newest
	f.began, f.newest = 0, Event{}
	f.recent = began > 0
	f.mu.Unlock()
	if began > 0 {
		time.AfterFunc(renewalLogEvery, f.next) // as in add
		f.log(context.Background(), newest, began-1)
	}
}
