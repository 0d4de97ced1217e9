package node

import (
	"time"

	"github.com/redlatch/redlatch/internal/clock"
)

// A gathering says whether calls wait in the mailbox for those of other callers, so that they leave
// together. It reads no clock.
//
// On a long way, a caller who finds all couriers away waits for most of a round trip. Each batch takes
// a courier away. Callers who were served together send their next calls together, within the time
// that the machine needs to wake them. If the first of these calls left alone, the others would need
// another courier. So they leave when the last of them has come.
//
// Callers do not come if they hold their locks for some time, or if a quorum has gone on without this
// node. After each wait in vain, twice as many batches come back before the next wait. The first of
// these takes the calls that have waited.
type gathering struct {
	missing int        // callers who were served, less the calls that have come since
	until   clock.Mono // the end of the wait; 0: there is none
	skip    int        // batches until the next wait
	pause   int        // skip after the last wait in vain
}

const (
	gatherFor    = 500 * time.Microsecond // a machine wakes callers in less
	longTrip     = 10 * gatherFor         // on a shorter one, nobody waits
	longestPause = 63
)

// landed notes that a batch is back after a trip, and that so many callers were served.
func (g *gathering) landed(served int, trip time.Duration, now clock.Mono) {
	switch {
	case g.waits(now):
		g.missing += served
	case served < 2 || trip < longTrip: // one caller waits for nobody
	case g.skip > 0:
		g.skip--
	default:
		g.missing, g.until = served, now.Add(gatherFor)
	}
}

// came notes a new call.
func (g *gathering) came(now clock.Mono) {
	if !g.waits(now) {
		return
	}
	if g.missing--; g.missing == 0 {
		g.until, g.pause = 0, g.pause/2
	}
}

// waits reports whether callers are missing, and not for long.
func (g *gathering) waits(now clock.Mono) bool {
	if g.until != 0 && now >= g.until {
		g.pause = min(2*g.pause+1, longestPause)
		g.until, g.skip = 0, g.pause
	}
	return g.until != 0
}
