package node

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/rediserr"
)

// A park has the calls that have failed, or wait until the server is well.
type park struct {
	illness illness
	parked  queues
	why     error // the newest failure that was about the whole server
}

// retryLocked has c, which has failed with err after some time, sent again.
func (n *Node) retryLocked(c *Call, err error, took time.Duration, now clock.Mono) {
	c.trouble, n.trouble = err, err
	n.Trouble(err)
	c.refused, c.sick = true, !n.several && rediserr.AboutServer(err)
	if c.sick {
		n.why = err
		n.illness.fail(took < atOnce && rediserr.Unreachable(err), now, rand.Float64())
		n.parkLocked(c, now)
		return
	}
	most := callPause
	if c.insistUntil != 0 {
		most = lastPause
	}
	c.pause = min(max(2*c.pause, firstPause), most)
	c.ready = now.Add(jitter(c.pause, rand.Float64()))
	n.again(c, now)
}

// parkLocked has c wait for a round.
func (n *Node) parkLocked(c *Call, now clock.Mono) {
	c.parked = true
	if c.trouble == nil {
		c.trouble = n.why
	}
	n.parked[c.rank()].put(c)
	if c.insistUntil == 0 {
		n.illness.hasten(c.rank() == newKeeps, now)
	}
	n.fireBy(n.illness.round, now)
}

var errAbandoned = errors.New("nobody waits for it any more")

// roundLocked sends parked calls if the next round is due.
func (n *Node) roundLocked(now clock.Mono) {
	if n.parked.first() == nil && !n.illness.ill {
		return
	}
	if now >= n.illness.round {
		sent, waited := 0, false
		for rank := range n.parked {
			waited = waited || rank != background && n.parked[rank].first != nil
			for ofRank := 0; n.parked[rank].first != nil && n.illness.leaves(rank, ofRank, sent); {
				if n.unparkLocked(n.nextLocked(rank), now) {
					ofRank++
					sent++
				}
			}
		}
		n.illness.left(sent, waited, now, rand.Float64())
	}
	n.fireBy(n.illness.round, now)
}

// nextLocked returns the parked call of a rank that leaves next in a round. While the server is ill, that is the newest
// of new calls: it has the most time left for a connection to open. The oldest has next to none when calls come all the
// time.
func (n *Node) nextLocked(rank int) *Call {
	if n.illness.ill && rank == newAsks {
		return n.parked[rank].last
	}
	return n.parked[rank].first
}

// followLocked sends more parked calls, since one was carried out.
func (n *Node) followLocked(now clock.Mono) {
	if n.illness.ill {
		n.illness.hope(now)
		n.fireBy(n.illness.round, now)
	}
	for sent := 0; sent < followers; {
		c := n.parked.first()
		if c == nil {
			return
		}
		if n.unparkLocked(c, now) {
			sent++
		}
	}
}

// unparkLocked sends a parked call, unless its time has passed, or ends it if it is abandoned: an abandoned
// acquire would take the key, for a moment, from those who wait.
func (n *Node) unparkLocked(c *Call, now clock.Mono) (sent bool) {
	c.leave()
	if c.hopeless(now) {
		return false
	}
	if c.Abandoned != nil && c.Abandoned.Load() {
		n.endLocked(c, Reply{Err: errAbandoned})
		return false
	}
	n.sendLocked(c)
	return true
}
