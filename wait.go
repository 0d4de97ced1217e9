package redlatch

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/node"
)

// poll waits for the turn of the key in this process and then polls until the lock is granted. It retries through all
// errors except permanent ones. refusal is the reply to the first attempt.
func (e *engine) poll(ctx context.Context, r *request, refusal acquireReply) (*Lock, error) {
	var ok bool
	if ok, r.last = e.turns.Take(ctx, r.place.key, r.last); !ok {
		return nil, &gaveUp{node.CtxError(ctx), r.last}
	}
	defer e.turns.Give(r.place.key)
	var pace pace
	for {
		if !sleep(ctx, e.pause(&pace, r, refusal)) {
			return nil, &gaveUp{node.CtxError(ctx), r.last}
		}
		asked := e.now()
		// Every attempt has its own token, so that the late release of one cannot end the next.
		lock, g, err := e.once(ctx, r)
		switch {
		case err == nil:
			e.turns.Note(r.place.key, ErrNotAcquired) // for the others, this process is the owner
			return lock, nil
		case endedBy(ctx, err):
			return nil, e.gaveUp(ctx, r, asked, err)
		case permanent(err):
			return nil, err
		case !errors.Is(err, ErrNotAcquired):
			e.reportTrouble(r, err)
		}
		r.last, refusal = err, g
		e.turns.Note(r.place.key, err)
	}
}

// The default pause doubles from shortestPause to longestPause, and half of it is random.
const (
	shortestPause = 8 * time.Millisecond
	longestPause  = 128 * time.Millisecond
)

// pause returns how long to wait after the attempt-th attempt. held is what is left of the holder's lease; the pause
// ends when it does.
func (cfg *config) pause(attempt int, held time.Duration) time.Duration {
	var d time.Duration
	if cfg.backoff != nil {
		d = max(cfg.backoff(attempt), time.Millisecond)
	} else {
		d = min(shortestPause<<min(attempt-1, 10), longestPause)
		d = d/2 + rand.N(d/2)
	}
	if held > 0 {
		d = min(d, held+time.Millisecond)
	}
	return d
}

// A pace is how often one waiter polls. A waiter that has seen the key change hands more often polls sooner, so that
// everybody is served in the end. While a key stays with one holder, the pauses grow:
//
//	longest pause = longestPause / (1 + changes/4) · 2^(looks at this holder / 16), at most longestPause
type pace struct {
	holder         string
	changes, looks int
}

// pause returns how long to wait after refusal. If the caller set WithBackoff, that alone decides. So does the
// default for waiters that could queue: they poll because clients of other libraries do.
func (e *engine) pause(p *pace, r *request, refusal acquireReply) time.Duration {
	p.looks++
	if refusal.Holder != "" && refusal.Holder != p.holder {
		if p.holder != "" {
			p.changes++
		}
		p.holder, p.looks = refusal.Holder, 0
	}
	left := refusal.Left
	if refusal.lookWithin > 0 {
		left = min(left, refusal.lookWithin)
	}
	d := r.cfg.pause(r.attempts, left)
	if r.cfg.backoff != nil || e.waitlist != nil {
		return d
	}
	most := max(4*longestPause/(4+time.Duration(p.changes)), shortestPause) << min(p.looks/16, 10)
	return min(d, most/2+rand.N(most/2))
}

// yield pauses if this process has just released the key and others want it. They poll, and would never find it free
// otherwise.
func (e *engine) yield(ctx context.Context, r *request) {
	if r.cfg.backoff != nil || !e.turns.JustServed(r.place.key) {
		return
	}
	d := longestPause/2 + rand.N(longestPause/2)
	if end, ok := ctx.Deadline(); ok {
		d = min(d, time.Until(end)/4) // leave time for its own attempts
	}
	sleep(ctx, d)
}

// gaveUp returns the error of a wait whose ctx ended during an attempt that was made at asked and failed with err. If
// that attempt had little time to get an answer, the outcome of the one before is reported instead.
func (e *engine) gaveUp(ctx context.Context, r *request, asked clock.Instant, err error) error {
	var cut *node.CutShort
	switch {
	case !errors.As(err, &cut):
		if !errors.As(err, new(*node.NotDone)) { // else ctx had ended before
			r.last = err
		}
	case !cut.Silent, r.last == nil, e.now().Since(asked) > r.cfg.timeout()/4:
		r.last = cut.Trouble
	}
	return &gaveUp{node.CtxError(ctx), r.last}
}

// sleep waits for d. It reports false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
