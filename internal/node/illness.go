package node

import (
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
)

const (
	firstPause  = 4 * time.Millisecond   // before a resend; doubles, with jitter
	callPause   = 64 * time.Millisecond  // up to that for one call, if there are several servers
	waitedPause = 100 * time.Millisecond // up to that for all calls, while somebody waits for one
	lastPause   = time.Second            // up to that while nobody does
)

// An illness says when the next command may be sent to a server that fails. The calls that have
// failed are parked. They share a pause, after which one of them is sent as a probe, and the pause
// doubles. All follow when the server has carried one out. With one server, new calls are parked
// too, but an urgent one is sent with the next probe. With several servers, those that fail need
// not be all, so new calls are sent, and each call pauses by itself too.
type illness struct {
	parked []*Call
	pause  time.Duration // before the next probe; 0: the server is well
	probed clock.Mono    // when the newest probe was sent
	probe  clock.Mono    // when the next one is
}

func (i *illness) ill() bool { return i.pause > 0 }

// jitter returns d, or up to a half more or less.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d) }

// retryLocked has c sent again, which has failed with err.
func (n *Node) retryLocked(c *Call, err error, now clock.Mono) {
	c.trouble, n.trouble = err, err
	n.Trouble(err)
	if n.several {
		c.pause = min(max(2*c.pause, firstPause), callPause)
		c.ready = now.Add(jitter(c.pause))
	}
	if !n.ill() {
		n.pause, n.probed = firstPause, now
		n.probe = now.Add(jitter(firstPause))
	}
	n.parkLocked(c, now)
}

// parkLocked has c wait for the next probe, or until it is ready. If somebody waits for it, that
// probe is sent soon.
func (n *Node) parkLocked(c *Call, now clock.Mono) {
	n.parked = append(n.parked, c)
	at := c.ready
	if n.ill() {
		if c.gives == 0 {
			n.probe = min(n.probe, n.probed.Add(waitedPause))
		}
		at = n.probe
	}
	n.fireByLocked(max(at, now.Add(tick)), now)
}

// recoverLocked says that the server has carried out a command.
func (n *Node) recoverLocked(now clock.Mono) {
	n.pause = 0
	if len(n.parked) > 0 {
		n.resendLocked(now)
	}
}

var errUnwanted = errors.New("nobody waits for it any more")

// resendLocked sends the parked calls whose time has come. Those that nobody waits for end: an
// acquire among them would take the key, for a moment, from those who wait.
func (n *Node) resendLocked(now clock.Mono) {
	n.parked = slices.DeleteFunc(n.parked, func(c *Call) bool {
		if c.at != over && c.Unwanted != nil && c.Unwanted.Load() {
			n.endLocked(c, Reply{Err: errUnwanted})
		}
		return c.at == over
	})
	if n.ill() && now < n.probe {
		n.fireByLocked(n.probe, now)
		return
	}
	probes, waited, next := 0, false, clock.Mono(0)
	n.parked = slices.DeleteFunc(n.parked, func(c *Call) bool {
		sends := c.ready <= now && (!n.ill() || probes == 0 || c.Urgent && !c.sent)
		if sends {
			probes++
			n.sendLocked(c)
		} else if next == 0 || c.ready < next {
			next = c.ready
		}
		waited = waited || c.gives == 0
		return sends
	})
	switch {
	case probes == 0 && len(n.parked) == 0:
		n.pause = 0
		return
	case n.ill():
		most := lastPause
		if waited {
			most = waitedPause
		}
		n.pause, n.probed = min(2*n.pause, most), now
		n.probe = now.Add(jitter(n.pause))
		next = n.probe
	case len(n.parked) == 0:
		return
	}
	n.fireByLocked(max(next, now.Add(tick)), now)
}
