package redlatch

import (
	"slices"
	"sync"
)

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
	gone     bool               // the release has come back
	then     []func()           // what waits for that
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

// released reports whether a release was asked for.
func (b *ballot) released() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}

// left notes that the release on node i has come back. It reports whether that was the last one.
func (b *ballot) left(i int) (last bool) {
	b.mu.Lock()
	then := b.nodes[i].then
	b.nodes[i].gone, b.nodes[i].then = true, nil
	last = !slices.ContainsFunc(b.nodes, func(n ballotOf) bool { return !n.gone })
	b.mu.Unlock()
	for _, f := range then {
		f()
	}
	return last
}

// after calls f, now or when the release on node i has come back.
func (b *ballot) after(i int, f func()) {
	b.mu.Lock()
	gone := b.nodes[i].gone
	if !gone {
		b.nodes[i].then = append(b.nodes[i].then, f)
	}
	b.mu.Unlock()
	if gone {
		f()
	}
}

// leaving has the ballots of the tokens that a process is releasing.
type leaving struct {
	mu     sync.Mutex // guards tokens
	tokens map[string]*ballot
}

func (l *leaving) add(token string, b *ballot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tokens[token] = b
}

func (l *leaving) remove(token string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.tokens, token)
}

// of returns the ballot of a token that is being released, or nil.
func (l *leaving) of(token string) *ballot {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tokens[token]
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
