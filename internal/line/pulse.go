package line

import (
	"time"

	"github.com/redlatch/redlatch/internal/clock"
)

// A Pulse is how long attempts take.
type Pulse struct {
	took  time.Duration
	least [2]time.Duration // of the present span of pulseSpan, and of the one before
	began clock.Mono       // the present span; 0: there is none
}

// pulseSpan is for how long the least duration of an attempt counts, at least.
const pulseSpan = 10 * time.Second

// Times returns how long an attempt takes at present, on average, and the least that one has taken
// of late. See Facts.
func (p *Pulse) Times() (took, idle time.Duration) { return p.took, min(p.least[0], p.least[1]) }

// Observe adds the duration of an attempt that ended at now. One that got no answer would have
// taken longer.
func (p *Pulse) Observe(now clock.Mono, took time.Duration, answered bool) {
	if took > p.took || answered {
		p.took += (took - p.took) / 8
	}
	switch {
	case !answered:
		return
	case p.began == 0:
		p.least = [2]time.Duration{took, took}
		p.began = now
	case now.Sub(p.began) > pulseSpan:
		p.least[1], p.least[0], p.began = p.least[0], took, now
	}
	p.least[0] = min(p.least[0], took)
}
