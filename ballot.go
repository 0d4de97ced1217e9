package redlatch

import "sync"

// A ballot orders the commands of one token on the nodes of a quorum. On each node a release is sent when whatever may create
// a vote there has come back, and nothing that may create one is sent after that. nil orders nothing.
type ballot struct {
	mu     sync.Mutex // guards the fields below
	closed bool       // a release was asked for
	nodes  []ballotOf
}

// ballotOf is what a ballot knows of one node.
type ballotOf struct {
	underWay int                // commands that may create a vote
	votes    bool               // one of those, or of the last that were, may have done so
	releases []func(votes bool) // that wait for those
}

func newBallot(nodes int) *ballot { return &ballot{nodes: make([]ballotOf, nodes)} }

// begin notes that a command that may create a vote is sent to each node. It reports false if none may be sent.
func (b *ballot) begin() bool {
	if b == nil {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	for i := range b.nodes {
		n := &b.nodes[i]
		n.votes = n.votes && n.underWay > 0
		n.underWay++
	}
	return true
}

// end notes that the command has come back from a node, and whether it may have created a vote there.
func (b *ballot) end(i int, votes bool) {
	if b == nil {
		return
	}
	b.mu.Lock()
	n := &b.nodes[i]
	n.underWay--
	n.votes = n.votes || votes
	votes = n.votes
	var releases []func(bool)
	if n.underWay == 0 {
		releases, n.releases = n.releases, nil
	}
	b.mu.Unlock()
	for _, release := range releases {
		release(votes)
	}
}

// release calls send, now or when nothing is under way to node i that may create a vote. send is told whether there may be one.
func (b *ballot) release(i int, send func(votes bool)) {
	b.mu.Lock()
	n := &b.nodes[i]
	b.closed = true
	waits := n.underWay > 0
	if waits {
		n.releases = append(n.releases, send)
	}
	votes := n.votes
	b.mu.Unlock()
	if !waits {
		send(votes)
	}
}
