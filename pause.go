package redlatch

import (
	"context"
	"math/rand/v2"
	"time"
)

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

// A pace is how often a line polls. A line that has seen the key change hands more often polls sooner, so that every
// process is served in the end. While a key stays with one holder, the pauses grow:
//
//	longest pause = longestPause / (1 + changes/4) · 2^(looks at this holder / 16), at most longestPause
//
// rest is how long the line pauses after a turn of its own if its strategy cannot tell whether others want the key. It is
// halved when the key was free then, and doubled when another process had it.
type pace struct {
	holder         string
	changes, looks int
	rest           time.Duration
}

// backoff is config.pause. If the function of WithBackoff panics, tidy runs, under lines.mu, and the line goes on.
func (w *waiters) backoff(attempt int, held time.Duration, tidy func()) time.Duration {
	returned := false
	defer func() {
		if !returned {
			w.engine.lines.mu.Lock()
			defer w.engine.lines.mu.Unlock()
			tidy()
			w.next = time.Now().Add(longestPause)
			w.dropLocked()
		}
	}()
	d := w.r.cfg.pause(attempt, held)
	returned = true
	return d
}

// pollPause returns how long to wait after refusal. If the caller set WithBackoff, that alone decides. So does the
// default for lines that could queue: they poll because clients of other libraries do.
func (w *waiters) pollPause(refusal acquireReply) time.Duration {
	p, left := &w.pace, refusal.Left
	p.looks++
	if refusal.Holder != "" && refusal.Holder != p.holder {
		if p.holder != "" {
			p.changes++
		}
		p.holder, p.looks = refusal.Holder, 0
	}
	if refusal.lookWithin > 0 {
		left = min(left, refusal.lookWithin)
	}
	d := w.backoff(w.tries, left, w.quietLocked)
	if w.r.cfg.backoff != nil || w.engine.channel != nil {
		return d
	}
	most := max(4*longestPause/(4+time.Duration(p.changes)), shortestPause) << min(p.looks/16, 10)
	return min(d, most/2+rand.N(most/2))
}

// refused notes that another process had the key after a rest.
func (p *pace) refused() { p.rest = min(max(2*p.rest, shortestPause), longestPause) }

// granted notes that the key was free after a rest.
func (p *pace) granted() { p.rest = max(p.rest/2, shortestPause/2) }

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
