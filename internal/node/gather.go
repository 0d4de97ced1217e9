package node

// A gathering says whether a courier that came back waits for the next calls of those whose calls it
// has carried, so that they leave together again. It knows no clock.
//
// On a long way, a caller who finds all couriers away waits for most of a round trip. Each new batch
// takes a courier away, and callers who were served together send their next calls together, within
// the time that the machine needs to wake them. If the first of these left alone, the others would
// need another courier. The wait is short, and often in vain if callers hold their locks for some
// time, or if a quorum has already gone on without this node. Then it is tried less often.
type gathering struct {
	missing int // calls that were delivered, beyond those that have come since
	skip    int // times not to wait
	pause   int // skip after the next wait in vain
}

const longestPause = 63

// delivered notes calls whose callers may send others now.
func (g *gathering) delivered(calls int) { g.missing += calls }

// came notes a call.
func (g *gathering) came() { g.missing = max(0, g.missing-1) }

// begins reports whether a courier waits while calls are missing.
func (g *gathering) begins() bool {
	if g.skip == 0 {
		return true
	}
	g.skip--
	g.missing = 0
	return false
}

// ends notes the end of a wait.
func (g *gathering) ends() {
	if g.missing == 0 {
		g.pause = 0
		return
	}
	g.skip, g.missing = g.pause, 0
	g.pause = min(2*g.pause+1, longestPause)
}
