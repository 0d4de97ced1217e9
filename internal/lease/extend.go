package lease

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
)

// renew runs when the timer fires.
func (l *Lease) renew() {
	now, renew := clock.Now(), false
	_ = l.change(nobody, func() {
		renew = l.core.tick(now, l.inUseLocked())
		l.weakenLocked()
		if renew {
			l.running.Add(1)
		}
		if l.core.judge(now) {
			l.timer.Reset(l.core.next(now, l.inUseLocked()))
		}
	})
	if renew {
		_ = l.send(context.Background(), nobody, 0, 0) // hooks report a failure, and the timer fires again
	}
}

// send sends an extension, see core.send, and waits for its outcome until ctx ends. Its caller has
// added it to l.running while the lease was held.
func (l *Lease) send(ctx context.Context, by caller, ttl, keep time.Duration) error {
	l.mu.Lock()
	x := l.core.send(ttl, keep, clock.Now())
	x.Number, x.by = l.first.core.number(), by
	l.mu.Unlock()
	return l.home.Extend(ctx, x)
}

// Extended handles the outcome of an extension, and reports it to the handle that asked for it: late if
// its call has returned before. It reports a renewal to one handle.
func (l *Lease) Extended(x *Extension, late bool, err error) error {
	if late {
		x.by.ctx = nil //nolint:fatcontext // the call has returned
	}
	var now clock.Instant
	var s seat
	ended := l.change(x.by, func() {
		now = clock.Now()
		if l.core.extended(x, now, err, errors.Is(err, ErrLost), rand.Float64()) {
			l.timer.Reset(l.core.next(now, l.inUseLocked()))
		}
		for taken := range l.seatsLocked {
			if x.by.seat == nil || x.by.seat == taken {
				s = *taken
				break
			}
		}
		l.running.Done() // before the hooks, which may call Unlock
	})
	if ended != nil {
		return ended
	}
	if s.by == nil { // the handle has left
		return cmp.Or(err, ErrReleased)
	}
	l.home.Report(x.by.context(), Report{
		By: s.by, Number: x.Number, Elapsed: now.Since(s.since), Took: now.Since(x.Start), Err: err, Extension: x,
	})
	return err
}
