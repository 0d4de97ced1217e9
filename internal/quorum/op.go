package quorum

import "time"

// Limit is above all counters: counter × 64 + 63 < 2^53 for counter < Limit.
const Limit = 1 << 47

// An Outcome is the kind of a node's answer.
type Outcome uint8

// What a node answers.
const (
	Pending Outcome = iota // no answer yet
	Done                   // the node did what was asked
	Held                   // another token holds the key
	NotHeld                // the token did not hold the key; of an acquire: it was not carried out, nor will it be
	Failed                 // unknown
	outcomes
)

// An Answer is what a node answered to a command.
type Answer struct {
	Outcome Outcome
	Vote    uint64        // to Acquire, Mint and Raise: the counter
	Holder  string        // to Acquire and Inspect: who holds the key, "" if nobody does
	Left    time.Duration // of Holder's lease; 0 or less if unknown
}

// maySet reports whether the token may hold the key by a command that creates, or may yet do so.
func (a *Answer) maySet(by Step) bool {
	return a.Outcome != Held && (a.Outcome != NotHeld || by == Restore)
}

// A Result is how an operation ended.
type Result uint8

// How an operation ends.
const (
	Undecided Result = iota
	OK               // done by a quorum
	Refused          // an acquire: no quorum can grant it, and at least one node showed another owner
	Lost             // so many nodes do not hold the key for the token that no quorum can
	NoQuorum         // so many nodes failed that the outcome is unknown, or it was released before
)

// An Op is one operation on all nodes. [Token.Begin] sets all but Of.
type Op struct {
	Of any // what the caller knows its operation by

	token *Token
	nodes []member
	step  Step

	Result Result // Undecided before the operation is decided. Of an acquire that was not granted, Finish follows later
	Fence  uint64 // the largest number attested so far: that of a quorum, if an Acquire or Mint is OK
}

// A member is what one node has said. Vote is the newest number that it attests.
type member struct {
	Answer
	asked  uint64 // the last number to raise its counter to
	silent bool   // nobody waits for it if another owner has votes
	owed   bool   // it has granted an acquire that failed, and the operation ends with its release
}

// take takes an answer to a command of o. It ignores answers that come after the decision or after
// a newer raise.
func (o *Op) take(e Effect, a Answer, out []Effect) []Effect {
	m := &o.nodes[e.Node]
	if a.Vote >= Limit || a.Outcome == Done && a.Vote < e.Fence {
		a.Outcome = Failed
	}
	switch {
	case o.Result != Undecided && e.Step == Release && m.owed:
		m.owed = false
		return o.finish(o.Result, out)
	case o.Result != Undecided:
		return out
	case e.Step == Raise && m.Outcome == Done && m.asked == e.Fence, e.Step != Raise && m.Outcome == Pending:
		m.Answer = a
		return o.decide(out)
	}
	return out
}

// decide ends the operation, or goes on with it, once the answers so far suffice.
func (o *Op) decide(out []Effect) []Effect {
	c := o.counts()
	need, most := o.token.need, len(o.nodes)-o.token.need // how many nodes may fail
	no := c[Held] + c[NotHeld]
	possible := c[Done]+c[Pending] >= need
	switch {
	case o.step == Inspect:
		_, held := o.Holder()
		free := o.count(func(m *member) bool { return m.Outcome == Done && m.Holder == "" })
		if max(held, free) < need && c[Pending] > 0 {
			return out
		}
		if c[Done] < need {
			return o.fail(NoQuorum, out)
		}
		return o.finish(OK, out)
	case c[Done] >= need && (o.step == Acquire || o.step == Mint):
		return o.agree(out)
	case c[Done] >= need:
		return o.finish(OK, out)
	case o.step == Acquire: // each node grants or refuses, so a quorum of answers decides
		waits := func(m *member) bool { return m.Outcome == Pending && !m.silent }
		if c[Done]+c[Held] >= need && (!possible || o.count(waits) == 0) {
			return o.fail(Refused, out)
		}
		if c[Done]+c[Held]+c[Pending] < need {
			return o.fail(NoQuorum, out)
		}
	case no > most:
		return o.fail(Lost, out)
	case !possible && no+c[Pending] <= most:
		return o.fail(NoQuorum, out)
	}
	return out
}

// agree finishes with the number that a quorum attests. If there is none, it raises the counters of
// the nodes that attest less than the largest number. If no quorum is left meanwhile, decide ends
// the operation.
func (o *Op) agree(out []Effect) []Effect {
	for i := range o.nodes {
		m := &o.nodes[i]
		if m.Outcome != Done {
			continue
		}
		same := func(n *member) bool { return n.Outcome == Done && n.Vote == m.Vote }
		if o.count(same) >= o.token.need {
			o.Fence = m.Vote
			return o.finish(OK, out)
		}
		o.Fence = max(o.Fence, m.Vote)
	}
	for i := range o.nodes {
		if m := &o.nodes[i]; m.Outcome == Done && m.Vote < o.Fence && m.asked < o.Fence {
			m.asked = o.Fence
			out = append(out, Effect{Op: o, Step: Raise, Node: i, Fence: o.Fence})
		}
	}
	return out
}

// finish ends the operation, once no node owes it the answer to a release. Nothing but a release is
// done on a token that is being released: by its owner, or because an extension has found the lock
// lost.
func (o *Op) finish(r Result, out []Effect) []Effect {
	if by := o.token.release; r == OK && by != nil && o.step != Release {
		r = NoQuorum
		if by.step == Restore {
			r = Lost
		}
	}
	if r == OK && (o.step == Extend || o.step == Restore) {
		for i := range o.token.nodes {
			o.token.nodes[i].gap = false
		}
	}
	o.Result = r
	if o.count(func(m *member) bool { return m.owed }) > 0 {
		return out
	}
	return append(out, Effect{Op: o, Step: Finish})
}

// fail ends an operation without success. An acquire releases the key on all nodes that have set it
// or may yet do so. So does an extension that finds the lock lost, if nobody else may know the
// token. An acquire finishes when the nodes that granted it have answered the release, so its
// caller's next attempt does not meet its own keys.
func (o *Op) fail(r Result, out []Effect) []Effect {
	if t := o.token; t.release == nil && (o.step == Acquire || o.step == Restore && r == Lost) {
		t.release = o
		for i := range o.nodes {
			if m := &o.nodes[i]; t.nodes[i].resent || m.maySet(o.step) {
				m.owed = o.step == Acquire && m.Outcome == Done
				out = o.send(Release, i, out)
			}
		}
	}
	return o.finish(r, out)
}
