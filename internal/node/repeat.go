package node

import (
	"cmp"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
)

const (
	insistFor   = time.Minute // after the timeout of a call that insists
	insistEvery = time.Second // or its timeout, if that is longer
)

// repeatLocked posts a call once more that ends now, after a pause, if it insists. The node gives
// up after a minute. What the repeat creates or keeps counts from the first call.
func (n *Node) repeatLocked(c *Call, pause time.Duration, now clock.Mono) {
	until := cmp.Or(c.insistUntil, now.Add(insistFor))
	if !c.Insists || now >= until {
		return
	}
	repeat := &Call{Timeout: max(c.Timeout, insistEvery), Insists: true, Again: c.Again, ctx: c.ctx, earlier: c.earlier}
	repeat.script, repeat.latest = c.script, c.latest
	repeat.Append(c.words...)
	repeat.limit, repeat.ready, repeat.insistUntil = c.limit, now.Add(pause), until
	repeat.sent, repeat.resent = true, c.resent || c.batch != nil
	if repeat.ready >= c.Again {
		repeat.Again = 0
	}
	n.postLocked(repeat, now)
	c.resent, c.Again = true, 0 // the repeat may be carried out
}
