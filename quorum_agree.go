package redlatch

import (
	"context"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/node"
)

// The operations on one node of a quorum, and how the nodes come to agree. A node votes for a fence by a counter for each
// key, since a quorum must agree on one number. To inspect a lock, a node runs the script of SetNXPX.

var (
	quorumScripts = scripts{
		acquire: script("quorum_acquire.lua"),
		extend:  script("quorum_extend.lua"),
		release: script("quorum_release.lua"),
		inspect: lockScripts.inspect,
	}
	raiseScript = script("quorum_raise.lua")
)

// quorumReleaseCall deletes the lock, or keeps it for some time.
func quorumReleaseCall(p *releaseParams) *node.Call {
	return p.released(node.Eval(quorumScripts.release, 2, &p.key, &p.wanted, &p.token))
}

// agree returns the fence of a lock that a quorum has just granted or extended. Each of those nodes raised its
// counter and voted for the new value.
//
//  1. If a quorum voted for one number, that is the fence: any later quorum shares a node with this one, whose
//     counter is higher then.
//  2. Else the largest vote is tried: every node where the token still holds the key raises its counter to that
//     number. A node agrees if its counter is the number then. If a counter is higher, that number is tried
//     instead, from the start.
//  3. A number that a quorum agrees on is the fence. The engine judges whether the lease is still valid then.
//
// The largest vote alone would be wrong: two locks could get the same fence.
//
// agree gives up after within, when the lease has ended.
func (r *redlock) agree(ctx context.Context, p *target, within time.Duration, votes []uint64, done func(uint64, error)) {
	counts := make(map[uint64]int)
	var highest uint64
	for _, vote := range votes {
		if counts[vote]++; counts[vote] >= r.quorum { // 1.
			done(vote, nil)
			return
		}
		highest = max(highest, vote)
	}
	r.raise(ctx, p, time.Now().Add(within), highest, done)
}

// raise is step 2 of agree with the number fence. It gives up at end.
func (r *redlock) raise(ctx context.Context, p *target, end time.Time, fence uint64, done func(uint64, error)) {
	t := newTally(r, "raise", p, readRaise)
	agreed, higher := 0, fence
	t.decided = func() bool {
		agreed = 0
		for i := range t.answers {
			if a := &t.answers[i]; a.succeeded() {
				higher = max(higher, a.value)
				if a.value == fence {
					agreed++
				}
			}
		}
		return agreed >= r.quorum || higher > fence || t.counts[successful]+t.pending() < r.quorum
	}
	t.then = func() {
		switch {
		case agreed >= r.quorum: // 3.
			done(fence, nil)
		case t.counts[notHeld] > len(r.nodes)-r.quorum: // the lock has ended
			done(0, t.fail(ErrLost))
		case higher == fence, time.Now().After(end):
			done(0, t.fail(ErrNoQuorum))
		default:
			r.raise(ctx, p, end, higher, done)
		}
	}
	t.ask(ctx, nil, func() *node.Call { return raiseCall(p, fence) })
}

// raiseCall returns the call that raises a fence counter to fence, if the token holds the lock.
func raiseCall(p *target, fence uint64) *node.Call {
	return node.Eval(raiseScript, 2, &p.key, &p.fences, &p.token, &fence)
}

func readRaise(r node.Reply) (uint64, error) {
	counter, err := compared(r)
	return uint64(max(counter, 0)), err
}

// readRenewal reads the reply of quorum_extend.lua to a renewal.
func readRenewal(r node.Reply) (uint64, error) {
	answer, err := readExtend(r)
	if answer == 2 {
		err = errRestored
	}
	return answer, err
}

// errRestored is the answer of a node that had lost the lock and has it again.
var errRestored = fmt.Errorf("%w", errDeleted)
