// Package fencemodel checks the protocol by which a quorum of nodes mints the fences of a
// lock. No program uses this package. Its tests are its purpose.
//
// The protocol:
//
//  1. An acquire takes the lock of a node if the lock is free, or if the client's token already
//     holds it. It raises the counter of the node to max(counter+1, floor), and the new value is
//     the node's vote. If another token holds the lock, the node refuses. f is the largest vote
//     that the client has received.
//  2. If a quorum of votes has one value, that value is the fence. It does not matter whether
//     there is a larger vote.
//  3. Otherwise, once the client has a quorum of votes, it raises all nodes to f. A node where
//     its token still holds the lock sets its counter to max(counter, f) and replies with the
//     counter. Exactly f is an acknowledgement. A larger counter is the new f, and a new round
//     starts.
//  4. If a quorum of nodes has acknowledged one f, f is the fence. Each node counts once.
//  5. If a granted lock has vanished from a node, an extend may heal the node. It sets the lock
//     again and raises the counter to max(counter, fence of the lock).
//
// What must hold:
//
//	unique:  no two grants have the same fence.
//	ordered: if one grant returned before the acquisition of another began, the other grant
//	         has the higher fence.
//
// Why it holds: a node attests f to a client if its counter is exactly f while it holds the
// client's token. A vote of f and an acknowledgement of f both attest f, and a grant of f needs
// a quorum of attestations. The quorums of two grants share a node. The counter of that node
// never falls. Between its two attestations it received the later token by an acquire, which
// raised its counter. So the later fence is higher. A heal restores a token without an acquire,
// but its client already has its grant and counts no more attestations. If one grant returned
// before the acquisition of the other began, it also comes first on the shared node. Each wrong
// variant in the tests breaks a word of this argument: "exactly", "holds" or "quorum", or, with a
// heal after a node was emptied, "never falls".
//
// The model has no leases. A lock may vanish from a node at any moment, and a client with a
// quorum is granted its lock, even if its lease would have ended. Leases only prevent grants.
//
// The tests explore worlds of 3 nodes completely, and play random runs of 5 nodes.
// -fencemodel.deep explores larger worlds. -fencemodel.random 5m plays for 5 minutes.
// -fencemodel.seed repeats a run.
package fencemodel

// A fence is a fencing token. Votes and counters have this type too. 0 is no fence and no vote.
type fence uint16

// A token names one acquisition. 0 means none.
type token uint16

// A node is the state of one lock on one Redis.
type node struct {
	holder  token
	counter fence
}

// rules select the protocol or a variant of it. The zero value is the protocol.
type rules struct {
	largestVote bool    // step 2: the largest of a quorum of votes is the fence
	oneVote     bool    // step 2: one vote is enough
	onlyLargest bool    // step 2: a quorum must agree on the largest vote
	earlyRaise  bool    // step 3: the first vote is enough to raise
	raiseAll    bool    // step 3: a raise ignores who holds the lock
	ackAbove    bool    // step 3: any counter from f up is an acknowledgement of f
	ackTwice    bool    // step 4: a node that gets a raise twice counts twice
	ackByVote   bool    // step 4: a vote of f, or a late reply with f, counts as an acknowledgement
	healing     healing // step 5
}

// healing is what an extend does to the counter of a node that it heals.
type healing uint8

const (
	healRaises   healing = iota // max(counter, fence): the protocol
	healAcquires                // max(counter+1, floor), as for an acquire
	healKeeps                   // counter: no change
)

// acquire takes step 1 on a node. It returns the vote, and false if the node refuses.
func (n *node) acquire(t token, floor fence) (fence, bool) {
	if n.holder != 0 && n.holder != t {
		return 0, false
	}
	n.holder = t
	n.counter = max(n.counter+1, floor)
	return n.counter, true
}

// raise takes step 3 on a node. It returns the counter, and false if the node refuses.
func (r rules) raise(n *node, t token, f fence) (fence, bool) {
	if n.holder != t && !r.raiseAll {
		return 0, false
	}
	n.counter = max(n.counter, f)
	return n.counter, true
}

// healNode takes step 5 on a node. It returns false and changes nothing if any token holds the lock.
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

// A decision is what a client does next, given the votes that it has received.
type decision uint8

const (
	wait     decision = iota // for more votes
	grant                    // the fence is f
	raiseToF                 // no quorum agrees: the first round raises to f
)

// decide takes steps 1 to 3 on the client. votes are indexed by node. 0 means that none was received.
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

// An answer is what a counter in a reply means to a client that raises to f.
type answer uint8

const (
	useless answer = iota
	ack            // of f, step 4
	larger         // the counter is the new f
)

// classify takes step 3 on the client. asked is the f of the raise that the node replied to. It is
// 0 for a late reply to an acquire.
func (r rules) classify(f, asked, counter fence) answer {
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

// acknowledged takes step 4: it reports whether acknowledgements of one f from this many
// nodes make f the fence.
func (r rules) acknowledged(nodes, quorum int) bool {
	if r.ackTwice {
		nodes *= 2
	}
	return nodes >= quorum
}

// broken returns the property that a grant of f breaks, or "" if it breaks none. taken means
// that f was granted before. after is the highest fence that had been granted when the
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
