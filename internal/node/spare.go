package node

import (
	"cmp"
	"errors"

	"github.com/redlatch/redlatch/internal/rediserr"
)

// A quorum goes on without a server that does not answer, and asks it with each lock. If all these
// calls waited for their timeouts, a node would hold thousands. A few of them suffice to notice that
// the server answers again.

// mostSpare is how many calls may wait for a server that does not answer before spare ones end at
// once.
const mostSpare = 64

var errCrowded = errors.New("many calls wait for an answer already")

// crowdedLocked reports whether a spare call ends at once.
func (n *Node) crowdedLocked() bool {
	if !n.silent && !n.illness.ill {
		return false
	}
	return n.mail[newAsks].length+n.parked[newAsks].length+n.parked[failedAsks].length >= mostSpare
}

// refuseLocked ends a call that was not added to the deadlines.
func (n *Node) refuseLocked(c *Call) {
	c.at, c.reply = over, Reply{Err: &rediserr.NotDone{Err: cmp.Or(n.trouble, errCrowded)}}
	n.ended.put(c)
	if !n.refuses {
		n.refuses = true
		go n.tellRefused() // ends when the receivers have returned
	}
}

// tellRefused calls the receivers of calls that were refused. Post must not.
func (n *Node) tellRefused() {
	n.mu.Lock()
	n.refuses = false
	n.unlock()
}
