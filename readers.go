package redlatch

import (
	"context"
	"sync"

	"github.com/redlatch/redlatch/internal/clock"
)

// The readers of a process share a lease, and so a permit: those who were in line when Redis granted
// it, and those who come soon after, see core.Lease.Join. A writer that waits is overtaken for that
// long at most. All have the fence of the grant: it is higher than that of any earlier writer, since
// the permit is held until the last of them has left.

// openLeases has the newest lease of each key, which readers may join.
type openLeases struct {
	mu    sync.Mutex // guards byKey
	byKey map[string]*lease
}

// open lets readers without options of their own join a lease that was granted just now.
func (l *lease) open() {
	a := l.attempt
	if e := a.engine; a.request.cfg.settings == e.cfg.settings {
		e.open.mu.Lock()
		e.open.byKey[a.id.lock] = l
		e.open.mu.Unlock()
	}
}

// closeTo ends that for a lease that has ended.
func (l *lease) closeTo() {
	o := &l.attempt.engine.open
	o.mu.Lock()
	defer o.mu.Unlock()
	if key := l.attempt.id.lock; o.byKey[key] == l {
		delete(o.byKey, key)
	}
}

// joinReaders returns a lock that a reader of this process shares with r, without a command, or
// nil.
func (e *engine) joinReaders(ctx context.Context, r *request) *Lock {
	if !e.reads || r.cfg.settings != e.cfg.settings {
		return nil
	}
	e.open.mu.Lock()
	l := e.open.byKey[r.names.lock]
	e.open.mu.Unlock()
	if l == nil {
		return nil
	}
	now := clock.Now()
	l.mu.Lock()
	if !l.core.Join(now) {
		_ = l.conclude(caller{new(seat), ctx}) // nobody who shared the lease makes this call
		return nil
	}
	return l.seatLocked(ctx, r, now)
}

// seat returns the handle of a reader for whom the lease was begun, too.
func (l *lease) seat(ctx context.Context, r *request, now clock.Instant) *Lock {
	l.mu.Lock()
	return l.seatLocked(ctx, r, now)
}

// seatLocked returns the handle of another reader, and unlocks mu.
func (l *lease) seatLocked(ctx context.Context, r *request, now clock.Instant) *Lock {
	s := new(seat)
	k := &Lock{handle: handle{lease: l, seat: s}}
	s.take(k, r, now)
	l.joined = append(l.joined, s)
	if !l.core.Young() {
		s.weaken()
	}
	if err := l.err; err != nil { // the lease has ended meanwhile
		s.end(err)
		l.mu.Unlock()
		l.reportLost(ctx, *s, err)
		return k
	}
	_ = l.conclude(caller{s, ctx})
	return k
}

// adoptReader acquires a permit for r if token holds one: so no reader ends the lock of another.
func (e *engine) adoptReader(ctx context.Context, r *request, token string) (*Lock, error) {
	a := e.newAttempt(r, nil, e.newToken(r.cfg))
	a.acquire.queueing = &queueing{beside: token}
	lock, _, err := a.make(ctx)
	return lock, err
}
