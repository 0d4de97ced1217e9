package redlatch

import (
	"errors"
	"sync"
	"time"
)

// A pulse is how long attempts take.
type pulse struct {
	mu    sync.Mutex // guards the fields below
	took  time.Duration
	least [2]time.Duration // of the present span of pulseSpan, and of the one before
	began time.Time        // the present span
}

// pulseSpan is for how long the least duration of an attempt counts, at least.
const pulseSpan = 10 * time.Second

// times returns how long an attempt takes at present, on average, and the least that one has taken of late.
func (p *pulse) times() (took, least time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.took, min(p.least[0], p.least[1])
}

// observe adds the duration of an attempt that ended at now. One that got no answer would have taken longer.
func (p *pulse) observe(now time.Time, took time.Duration, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	answered := err == nil || errors.Is(err, ErrNotAcquired)
	if took > p.took || answered {
		p.took += (took - p.took) / 8
	}
	if !answered {
		return
	}
	if now.Sub(p.began) > pulseSpan {
		if p.began.IsZero() {
			p.least[0] = took
		}
		p.least[1], p.least[0], p.began = p.least[0], took, now
	}
	p.least[0] = min(p.least[0], took)
}
