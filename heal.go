package redlatch

import (
	"context"
	_ "embed" // for the script
)

var (
	//go:embed heal.lua
	healSource string

	healScript = newScript(healSource)
)

// heal gives the lock back to the nodes that answered, or are yet to answer, that they lost it.
func (r *redlock) heal(ctx context.Context, c *claim, t *tally) {
	healing := func(j *job) {
		if outcomeOf(j) == gone {
			r.nodes[j.index].start(detached(ctx), heal, c, form{undo: release, ordered: true})
		}
	}
	for _, j := range t.answers {
		if j != nil {
			healing(j)
		}
	}
	if left := t.pending(); left > 0 {
		// Ends when the last answer is there, so with the bound of the extension.
		go func() {
			for range left {
				healing(<-t.reports)
			}
		}()
	}
}

// heal gives a lock back to a node that lost it, while the lease lasts.
func heal(j *job, c *claim) (grant, error) {
	if !c.trusted() {
		return grant{}, &undone{ErrReleased}
	}
	ttl := c.ttl.Milliseconds()
	words := healScript.call(j, 1, &c.key, &c.token, &ttl)
	if c.fenced {
		words = healScript.call(j, 2, &c.key, &c.fences, &c.token, &ttl, &c.fence)
	}
	reply, _, err := j.send(healScript, words)
	switch {
	case err != nil:
		return grant{}, err
	case reply == int64(1):
		return grant{found: true}, nil // an adopter may count on it by now
	case reply == int64(0):
		return grant{}, ErrNotAcquired
	}
	return grant{}, oddReply("heal.lua", reply)
}
