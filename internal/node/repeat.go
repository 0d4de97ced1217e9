package node

import (
	"cmp"
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
)

const (
	insistFor   = time.Minute // after the timeout of a call that insists
	insistEvery = time.Second // or its timeout, if that is longer
	mostRepeats = 10_000      // at once. What they would release ends with its TTL
)

// repeatLocked posts a call that ends now once more, after a pause, if it insists. The node gives up
// after a minute, or if there are too many. The times of what the repeat creates or keeps count from
// the first call. The repeat keeps nothing of the caller.
func (n *Node) repeatLocked(c *Call, pause time.Duration, now clock.Mono) {
	first := c.insistUntil == 0
	until := cmp.Or(c.insistUntil, now.Add(insistFor))
	if !c.Insists || now >= until || first && n.repeats >= mostRepeats {
		return
	}
	repeat := &Call{Timeout: max(c.Timeout, insistEvery), Insists: true, Again: c.Again, earlier: c.earlier}
	repeat.ctx = context.Background()
	repeat.script, repeat.latest, repeat.from = c.script, c.latest, c.from
	for _, word := range c.words {
		if secret, is := word.(*string); is && first {
			copied := *secret
			word = &copied
		}
		repeat.Append(word)
	}
	repeat.limit, repeat.ready, repeat.insistUntil = c.limit, now.Add(pause), until
	repeat.sent, repeat.resent = true, c.resent || c.batch != nil
	if repeat.ready >= c.Again {
		repeat.Again = 0
	}
	n.repeats++
	n.postLocked(repeat, now)
	c.resent, c.Again = true, 0 // the repeat may be carried out
}
