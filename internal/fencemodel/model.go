// Package fencemodel checks the protocol by which a quorum of nodes mints the fences of a
// lock. Nothing here is linked into a program: the tests are the product.
//
// The protocol:
//
//  1. An acquire takes a node's lock where it is free or ours already, raises the node's
//     counter to max(counter+1, floor) and votes the new value. Where the lock is another's
//     it is refused. The client makes f the largest of the votes it received.
//  2. If a quorum of the votes is one and the same value, that is the fence, whether a larger
//     vote was received or not.
//  3. Else, with a quorum of votes, the client raises to f on all nodes: a node where its
//     token still holds makes its counter max(counter, f) and tells it. Exactly f is an
//     acknowledgement; a larger counter is the new f, and the round starts again.
//  4. A quorum of acknowledgements of one f, each node counted once: f is the fence.
//  5. Where a granted lock has vanished from a node, an extend may heal the node: it sets
//     the lock again and raises the counter to the lock's fence, max(counter, fence).
//
// What must hold:
//
//	unique: no two grants share a fence;
//	ordered: a grant whose acquisition began after another grant had returned has the
//	         higher fence of the two.
//
// Why it does: a node attests f to a client if it holds the client's token while its counter
// is exactly f. A vote of f attests f, an acknowledgement does, and a grant of f has a quorum
// that attested it. Two grants share a node of their quorums. Its counter never falls, and
// between the two attestations the later token came by an acquire, which raised the counter:
// the later fence is higher. (A heal brings a token back without an acquire, but to a client
// that has its grant and counts no more.) If one grant had returned before the other's
// acquisition began, it is the earlier on the shared node too. Each wrong variant in the
// tests takes away a word of this: exactly, holds, quorum, or, by a heal after a node was
// emptied, never falls.
//
// The model knows no leases: a lock may vanish from a node at any moment, and a client that
// has a quorum is granted its lock, valid or not. A lease only takes grants away.
//
// The tests explore worlds of 3 nodes to the end, and play random runs of 5 nodes.
// -fencemodel.deep explores larger worlds, -fencemodel.random 5m plays for 5 minutes, and
// -fencemodel.seed plays a run again.
package fencemodel

// A fence is what is minted; votes and counters are of its type. 0 is no fence and no vote.
type fence uint16

// A token names one acquisition; 0 is nobody's.
type token uint16

// A node is what one Redis knows of one lock.
type node struct {
	holder  token
	counter fence
}

// rules are the protocol or a variant of it. The zero value is the protocol.
type rules struct {
	largestVote bool    // step 2: the largest of a quorum of votes is the fence
	oneVote     bool    // step 2: one vote is agreement enough
	onlyLargest bool    // step 2: votes that agree on less than the largest received do not count
	earlyRaise  bool    // step 3: the first vote is enough to raise
	raiseAll    bool    // step 3: a raise does not ask whose the lock is
	ackAbove    bool    // step 3: any counter from f up is an acknowledgement of f
	ackTwice    bool    // step 4: a raise that was sent again is acknowledged twice by its node
	ackByVote   bool    // step 4: whatever told that the counter is exactly f is an acknowledgement
	healing     healing // step 5
}

// healing is what an extend does to the counter of a node that it heals.
type healing uint8

const (
	healRaises   healing = iota // max(counter, fence): the protocol
	healAcquires                // max(counter+1, floor): as an acquire does
	healKeeps                   // counter: nothing
)

// acquire is step 1 on a node. It reports the vote, and false where it was refused.
func (n *node) acquire(t token, floor fence) (fence, bool) {
	if n.holder != 0 && n.holder != t {
		return 0, false
	}
	n.holder = t
	n.counter = max(n.counter+1, floor)
	return n.counter, true
}

// raise is step 3 on a node. It reports the counter, and false where it was refused.
func (r rules) raise(n *node, t token, f fence) (fence, bool) {
	if n.holder != t && !r.raiseAll {
		return 0, false
	}
	n.counter = max(n.counter, f)
	return n.counter, true
}

// healNode is step 5 on a node. It reports false where the node was left as it is, because
// somebody has the lock.
func (r rules) healNode(n *node, t token, f, floor fence) bool {
	if n.holder != 0 {
		return false
	}
	n.holder = t
	switch r.healing {
	case healRaises:
		n.counter = max(n.counter, f)
	case healAcquires:
		n.counter = max(n.counter+1, floor)
	}
	return true
}

// A decision is what a client does next with the votes that it has.
type decision uint8

const (
	wait     decision = iota // for more votes
	grant                    // the fence is f
	raiseToF                 // there is no agreement: the first round is for f
)

// decide is steps 1 to 3 on the client. votes are by node, 0 where none was received.
func (r rules) decide(votes []fence, quorum int) (decision, fence) {
	received, largest := 0, fence(0)
	for _, v := range votes {
		if v != 0 {
			received++
			largest = max(largest, v) // 1.
		}
	}
	agree, enough := quorum, quorum
	if r.oneVote {
		agree = 1
	}
	if r.earlyRaise {
		enough = 1
	}
	for _, f := range votes { // 2.
		if f != 0 && count(votes, f) >= agree && (f == largest || !r.onlyLargest) {
			return grant, f
		}
	}
	if received < enough {
		return wait, 0
	}
	if r.largestVote {
		return grant, largest
	}
	return raiseToF, largest // 3.
}

func count(votes []fence, f fence) int {
	n := 0
	for _, v := range votes {
		if v == f {
			n++
		}
	}
	return n
}

// An answer is what a client that raises to f makes of a counter that a node told.
type answer uint8

const (
	useless answer = iota
	ack            // of f, step 4
	larger         // the counter is the new f
)

// hear is step 3 on the client. asked is the f of the raise that is answered, 0 for the
// late answer to an acquire.
func (r rules) hear(f, asked, counter fence) answer {
	switch {
	case r.ackAbove && asked == f && counter >= f:
		return ack
	case counter > f:
		return larger
	case counter == f && (asked == f || r.ackByVote):
		return ack
	}
	return useless
}

// acknowledged is step 4: whether the acknowledgements of one f, from so many different
// nodes, make it the fence.
func (r rules) acknowledged(nodes, quorum int) bool {
	if r.ackTwice {
		nodes *= 2
	}
	return nodes >= quorum
}

// broken returns the property that a grant of f breaks, "" if it breaks none. taken is
// whether f was granted before, after the highest fence that had been granted when the
// acquisition began.
func broken(f fence, taken bool, after fence) string {
	switch {
	case taken:
		return "unique"
	case f < after:
		return "ordered"
	}
	return ""
}
