package redlatch

import (
	"sync"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/wire"
)

// What a Locker is told anyway can show that it has lost a lock: a refusal, an inspection, or a
// grant to another token. It is not judged here, since it may be older than what it contradicts. It
// only makes a renewal due, which compares the token: see lease.Lease.Doubt. A message follows a
// refusal, which has shown as much.

// newestLeases has the newest lease of each key that this Locker holds, if a key has one holder. Of readers it has the
// newest that others may have joined. It has none that has ended.
type newestLeases struct {
	mu    sync.Mutex // guards byKey
	byKey map[string]*attempt
}

// of returns the attempt with the lease of a key, or nil.
func (n *newestLeases) of(key string) *attempt {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.byKey[key]
}

// exclusive reports whether a holder of a key keeps all others out.
func (t *traits) exclusive() bool { return t.limit == 0 || t.writes }

// opens reports whether newestLeases has the lease. Readers with options of their own are not joined.
func (a *attempt) opens() bool {
	e := a.engine
	return e.exclusive() || e.reads && a.request.cfg.settings == e.cfg.settings
}

// open notes a lease that begins. If a key has one holder, an earlier lease is in doubt.
func (a *attempt) open() {
	if !a.opens() {
		return
	}
	n := &a.engine.newest
	n.mu.Lock()
	before := n.byKey[a.id.lock]
	n.byKey[a.id.lock] = a
	n.mu.Unlock()
	if before != nil {
		before.seen(a.id.token, clock.MonoNow())
	}
}

// close notes that a lease has ended.
func (a *attempt) close() {
	if !a.opens() {
		return
	}
	n, key := &a.engine.newest, a.id.lock
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.byKey[key] == a {
		delete(n.byKey, key)
	}
}

// sees doubts the leases that exclude the holder of a key. A command that was sent at asked has shown that holder;
// empty: nobody holds the key.
func (e *engine) sees(holder, key string, asked clock.Mono) {
	for _, side := range [...]*engine{e, e.twin} {
		if side != nil {
			if a := side.newest.of(key); a != nil {
				a.seen(holder, asked)
			}
		}
	}
}

// seen doubts the lease if it excludes a holder of its key.
func (a *attempt) seen(holder string, asked clock.Mono) {
	if holder == a.id.token || !a.engine.exclusive() && holder != "" && !wire.Parse(holder).Writes {
		return
	}
	a.lease.Doubt(asked)
}
