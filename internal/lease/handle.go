package lease

import (
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
)

// A Handle is what a caller has of a lease: a seat, and its number among the handles that have had
// that seat, one after the other. The lease is in use while the struct exists that Begin, Pass, Join or
// Seat has filled. A copy does not keep it in use. The zero Handle has no lease.
type Handle struct {
	lease  *Lease
	seat   *seat
	number int
}

// NoHandle returns a handle that has left its lease.
func NoHandle(home Home) Handle {
	l := new(Lease)
	l.Init(home, new(Config), false)
	return Handle{lease: l, seat: &l.first, number: -1}
}

// Home returns that of the lease.
func (h Handle) Home() Home { return h.lease.home }

// Number returns the place of the handle among those with its seat.
func (h Handle) Number() int { return h.number }

// Granted returns the Config of the call that was granted the lock, and when it was.
func (h Handle) Granted() (by *Config, since clock.Instant) {
	h.lease.mu.Lock()
	defer h.lease.mu.Unlock()
	return h.seat.by, h.seat.since
}

// change calls f as that of the lease does, unless the handle has left the lease to others.
func (h Handle) change(by caller, f func()) error {
	holds := false
	err := h.lease.change(by, func() {
		if holds = h.seat.core.holds(h.number); holds {
			f()
		}
	})
	if !holds {
		return ErrReleased
	}
	return err
}

// errLocked returns why the handle has ended. It does not judge the lease.
func (h Handle) errLocked() error {
	if !h.seat.core.holds(h.number) {
		return ErrReleased
	}
	return h.lease.err
}

// Err judges the lease and returns why the handle ended.
func (h Handle) Err() error {
	return h.change(caller{seat: h.seat}, func() { h.lease.core.judge(clock.Now()) })
}

// End ends the lease with the err of the other side of a migration, unless it or the handle has
// ended.
func (h Handle) End(err error) {
	_ = h.lease.change(nobody, func() { h.lease.core.endBy(&h.seat.core, h.number, err) })
}

// Unlock ends the handle. It leaves the lock to others who share it, passes it on within the
// process, or ends the lease and gives the key back, whatever has become of the lease and of ctx.
// If after is set, nobody else gets the key within that time. It waits for the release and for an
// extension in flight, which fails if it reaches Redis after the release. If the lease was lost and
// others may know the token, the key is left alone: another handle may hold it.
func (h Handle) Unlock(ctx context.Context, after time.Duration) error {
	l := h.lease
	var what release
	var keep time.Duration
	var began clock.Instant
	var s seat
	ended := l.change(caller{h.seat, ctx}, func() {
		began = clock.Now()
		what, keep = l.core.unlock(&h.seat.core, h.number, began, after)
		s = *h.seat
		switch what {
		case keepOut:
			l.running.Add(1)
			fallthrough
		case stay, passOn:
			h.seat.end(ErrReleased)
		}
	})
	now, passed := began, false
	var err error
	if what == keepOut {
		what, keep, err = l.leaveAfter(ctx, caller{h.seat, ctx}, keep)
		now = clock.Now()
	}
	switch what {
	case refuse:
		return ErrReleased
	case passOn:
		passed, err = l.home.Pass(ctx, now)
	case giveBack, giveIfThere:
		err = l.home.GiveBack(ctx, now, keep, what == giveBack)
	}
	replied := now
	if !passed && what != stay {
		replied = clock.Now()
		l.running.Wait()
	}
	if ended != nil && (what == giveIfThere || what == giveNothing || what == stay) {
		return ended
	}
	l.home.Report(ctx, Report{
		By: s.by, Number: h.number, Elapsed: replied.Since(s.since), Took: replied.Since(began), Err: err,
	})
	return err
}

// leaveAfter extends the lease by keep, for a handle that leaves it to others and keeps others out. It
// returns how to go on. If another handle has given the key back by then, nothing is left to do.
func (l *Lease) leaveAfter(ctx context.Context, by caller, keep time.Duration) (release, time.Duration, error) {
	err := l.send(context.WithoutCancel(ctx), by, 0, keep)
	if errors.Is(err, ErrReleased) { // as the handle has
		err = nil
	}
	var what release
	_ = l.change(nobody, func() { what, keep = l.core.leave(clock.Now()) })
	return what, keep, err
}

// Extend makes the lease last for ttl from now.
func (h Handle) Extend(ctx context.Context, ttl time.Duration) error {
	l := h.lease
	if err := h.change(caller{h.seat, ctx}, func() {
		l.core.settle()
		l.weakenLocked()
		if l.core.judge(clock.Now()) {
			l.running.Add(1)
		}
	}); err != nil {
		return err
	}
	return l.send(ctx, caller{h.seat, ctx}, ttl, 0)
}

// Reveal says that others will know the token. It reports false if the handle has left the lease to
// others: then they must not.
func (h Handle) Reveal() (has bool) {
	_ = h.change(caller{seat: h.seat}, func() {
		h.lease.core.reveal()
		h.lease.weakenLocked()
		has = true
	})
	return has
}

// DropMinHold lets Unlock keep nobody out.
func (h Handle) DropMinHold() {
	h.lease.mu.Lock()
	defer h.lease.mu.Unlock()
	h.seat.core.dropsMinHold = true
}

// Until returns the end of the lease.
func (h Handle) Until() time.Time {
	h.lease.mu.Lock()
	defer h.lease.mu.Unlock()
	return h.lease.core.until().Time()
}

// Ended returns a ctx without values that ends with the handle.
func (h Handle) Ended() context.Context {
	h.lease.mu.Lock()
	defer h.lease.mu.Unlock()
	if err := h.errLocked(); err != nil {
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(err)
		return ctx
	}
	return h.seat.endsLocked()
}
