package quorum

import "slices"

// Most is the largest number of nodes.
const Most = 64

// A Step is a command to one node, or an operation, which sends that command to all nodes.
type Step uint8

// The commands, and the end of an operation.
const (
	Acquire Step = iota // sets the key if it is free, and votes for a fence
	Raise               // raises the counter to Effect.Fence if the token holds the key. No operation
	Extend              // extends the lease if the token holds the key
	Restore             // extends the lease, or sets the key again if it is free
	Mint                // extends the lease, and votes for a new fence
	Release             // deletes or keeps the key if the token holds it
	Inspect             // reads the key
	Finish              // no command: Effect.Op has its result
)

// Creates reports whether the command may set a free key.
func (s Step) Creates() bool { return s == Acquire || s == Restore }

// An Effect is a command to send, or the end of an operation.
type Effect struct {
	Op    *Op
	Step  Step
	Node  int
	Fence uint64 // of Raise
}

// A Token keeps the order of the commands of one token on each node:
//
//	at most one command under way to a node creates, and no release is sent meanwhile
//	no operation that creates begins after a release was asked for
//	no release is sent to a node that has surely not set the key
type Token struct {
	nodes   []presence
	need    int // a quorum
	release *Op // the newest operation that releases the token
}

// A presence is what a node may have of the token.
type presence struct {
	creating bool // a command is under way that may set the key
	resent   bool // a command whose answer came too late to count may have set the key
	absent   bool // no answered command has set the key
	gap      bool // the token did not hold the key there, and no extension was done since
}

// New returns the Token of a fresh token on n nodes.
func New(n int) Token { return Token{nodes: make([]presence, n), need: n/2 + 1} }

// Begin begins o, an operation. silent has a bit for each node that did not answer its last command
// in time. While a command is under way that creates, Restore is Extend, so that no extension
// counts what another one has restored. After a release was asked for, any other operation finishes
// at once.
func (t *Token) Begin(o *Op, step Step, silent uint64, out []Effect) []Effect {
	if step == Restore && slices.ContainsFunc(t.nodes, func(p presence) bool { return p.creating }) {
		step = Extend
	}
	*o = Op{Of: o.Of, token: t, step: step, nodes: make([]member, len(t.nodes))}
	switch {
	case step == Release:
		t.release = o
	case t.release != nil:
		return o.finish(OK, out)
	}
	for i := range o.nodes {
		o.nodes[i].silent = silent&(1<<i) != 0
		out = o.send(step, i, out)
	}
	if step == Release {
		return o.decide(out) // it may have nothing to wait for
	}
	return out
}

// Answer takes the answer to the command of e.
func (t *Token) Answer(e Effect, a Answer, out []Effect) []Effect {
	p := &t.nodes[e.Node]
	if e.Step.Creates() {
		p.creating, p.absent = false, !a.maySet(e.Step)
		p.resent = p.resent || t.release != nil && a.maySet(e.Step)
		out = t.releaseLate(e.Node, out)
	}
	if e.Step == Extend || e.Step == Restore {
		if p.gap && a.Outcome == Done {
			a.Outcome = NotHeld
		}
		p.gap = p.gap || a.Outcome == NotHeld
	}
	return e.Op.take(e, a, out)
}

// Settled says that earlier sends to a node, of a command that was answered, can no longer be
// carried out.
func (t *Token) Settled(node int, out []Effect) []Effect {
	t.nodes[node].resent = true
	return t.releaseLate(node, out)
}

// releaseLate sends the release that had to wait for a command, or that makes up for one that was
// carried out after it.
func (t *Token) releaseLate(node int, out []Effect) []Effect {
	r := t.release
	if r == nil || r.step != Release && !t.nodes[node].resent {
		return out
	}
	if out = r.send(Release, node, out); r.step == Release && r.Result == Undecided {
		return r.decide(out)
	}
	return out
}

// send sends a command to a node. A release waits until nothing under way can set the key any more.
// It is not sent if the key was not set: that is its answer.
func (o *Op) send(step Step, node int, out []Effect) []Effect {
	p := &o.token.nodes[node]
	switch {
	case step == Release && p.creating:
		return out
	case step == Release && p.absent && !p.resent:
		if o.Result == Undecided {
			o.nodes[node].Outcome = NotHeld
		}
		return out
	case step.Creates():
		p.creating = true
	}
	return append(out, Effect{Op: o, Step: step, Node: node})
}
