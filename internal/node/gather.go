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
// node. After each time in vain, twice as many batches come back before the next time.
type gathering struct {
	missing int        // callers who were served and have not sent their next calls
	until   clock.Mono // when the calls leave at the latest; 0: none wait
	skip    int        // batches until the next time
	pause   int        // skip after the next time in vain
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
	case served == 0 || trip < longTrip:
	case g.skip > 0:
		g.skip--
	default:
		g.missing, g.until = served, now.Add(gatherFor)
	}
}

// came notes a call.
func (g *gathering) came() {
	if g.until == 0 {
		return
	}
	if g.missing--; g.missing == 0 {
		g.until, g.pause = 0, g.pause/2
	}
}

// waits reports whether calls wait.
func (g *gathering) waits(now clock.Mono) bool {
	if g.until != 0 && now >= g.until {
		g.until, g.skip = 0, g.pause
		g.pause = min(2*g.pause+1, longestPause)
	}
	return g.until != 0
}
