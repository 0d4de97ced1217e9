package redlatch

import (
	"context"
	_ "embed" // for the script
	"errors"
	"time"
)

var (
	//go:embed raise.lua
	raiseSource string

	raiseScript = newScript(raiseSource)
)

// quorumGrain is the grain of the clocks below fence counters: nodes whose clocks are not far
// apart count from the same floor and need no second round trip to agree.
const quorumGrain = 1_000_000

// agree returns the fence of a lock that a quorum has just granted. Every grant raised the counter
// of its node and voted it.
//
//  1. If a quorum of the votes is one number, that is the fence: any later quorum shares a node
//     with this one, whose counter is then higher.
//  2. Else the largest vote is tried: all nodes where our token still holds the key raise their
//     counters to it. A node agrees if its counter is that number then. A higher one is tried
//     instead, from the start.
//  3. A number that a quorum agrees to is the fence. Whether the lease is still good by then, the
//     engine judges.
//
// The largest of a majority's votes alone would be wrong: two locks could get the same.
func (r *redlock) agree(ctx context.Context, c *claim, votes *tally) (uint64, error) {
	begin := time.Now()
	counts := make(map[uint64]int)
	var fence uint64
	for _, j := range votes.answers {
		if j != nil && outcomeOf(j) == yes {
			if counts[j.grant.fence]++; counts[j.grant.fence] >= r.quorum { // 1.
				return j.grant.fence, nil
			}
			fence = max(fence, j.grant.fence)
		}
	}
	for {
		try := *c
		try.fence = fence
		t := r.ask(ctx, "raise", &try, raise, form{})
		agreed, higher := 0, fence
		t.collect(ctx, func() bool { // 2.
			agreed = 0
			for _, j := range t.answers {
				if j != nil && outcomeOf(j) == yes {
					higher = max(higher, j.grant.fence)
					if j.grant.fence == fence {
						agreed++
					}
				}
			}
			return agreed >= r.quorum || higher > fence || t.count(yes)+t.pending() < r.quorum
		})
		switch {
		case agreed >= r.quorum: // 3.
			return fence, nil
		case ctx.Err() != nil:
			return 0, &undone{ctxError(ctx)}
		case higher == fence, time.Since(begin) > c.ttl:
			return 0, t.fail(ErrNoQuorum)
		}
		fence = higher
	}
}

// raise raises the fence counter of a lock.
func raise(j *job, c *claim) (grant, error) {
	words := raiseScript.call(j, 2, &c.key, &c.fences, &c.token, &c.fence)
	reply, _, err := j.send(raiseScript, words)
	switch counter, ok := reply.(int64); {
	case errors.Is(err, errOtherData):
		return grant{}, ErrLost
	case err != nil:
		return grant{}, err
	case !ok:
		return grant{}, oddReply("raise.lua", reply)
	case counter == 0:
		return grant{}, ErrLost
	default:
		return grant{fence: uint64(counter)}, nil
	}
}
