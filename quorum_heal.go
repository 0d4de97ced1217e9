package redlatch

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/node"
)

var healScript = script("quorum_heal.lua")

// heal gives the lock back to nodes that have lost it, including those that answer later.
func (r *redlock) heal(ctx context.Context, p *extendParams, t *tally[uint64]) {
	for i := range t.answers {
		if a := &t.answers[i]; a.there && outcomeOf(a.err) == notHeld {
			r.healOn(ctx, i, p)
		}
	}
	if left := t.pending(); left > 0 {
		// It ends with the last answer, so with the timeout of the extension. Nobody waits for it.
		go func() {
			for range left {
				if c := <-t.reports; t.take(c) == notHeld {
					r.healOn(ctx, c.Index, p)
				}
			}
		}()
	}
}

// healOn gives the lock back to node i, while the lease lasts and for as long. The release of Unlock follows it. If that
// release overtakes it, the late reply has it released again.
func (r *redlock) healOn(ctx context.Context, i int, p *extendParams) {
	ctx = detached(ctx)
	p.whileHeld(func(left time.Duration) {
		c := healCall(p, max(p.ttl, clock.TTLFor(left, p.drift)))
		c.Key, c.Ordered, c.Timeout = p.key, true, min(p.timeout, left)
		if !p.callerToken {
			c.Late = r.late(ctx, i, &p.target, p.state, readHeal)
		}
		r.nodes[i].Post(ctx, c)
		c.Leave()
	})
}

func healCall(p *extendParams, ttl time.Duration) *node.Call {
	ms := ttl.Milliseconds()
	return node.Eval(healScript, 2, &p.key, &p.fences, &p.token, &ms, &p.fence)
}

// readHeal reads the reply of quorum_heal.lua. A healed key counts as held before, since an adopter may rely on it.
func readHeal(r node.Reply) (acquireReply, error) {
	switch {
	case r.Err != nil:
		return acquireReply{}, r.Err
	case r.Value == int64(1):
		return acquireReply{alreadyHeld: true}, nil
	case r.Value == int64(0):
		return acquireReply{}, ErrNotAcquired
	}
	return acquireReply{}, oddReply(r.Value)
}
