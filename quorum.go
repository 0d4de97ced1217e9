package redlatch

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/node"
)

// An outcome is the kind of a node's answer.
type outcome int

const (
	done          outcome = iota
	heldByAnother         // another owner has the key
	notHeld               // the token does not hold the key
	noAnswer              // any other error
)

func outcomeOf(err error) outcome {
	switch {
	case err == nil:
		return done
	case errors.Is(err, ErrNotAcquired):
		return heldByAnother
	case errors.Is(err, ErrLost):
		return notHeld
	}
	return noAnswer
}

// An answer is the reply of one node. value and err are valid if there is set.
type answer[T any] struct {
	there  bool
	value  T
	err    error
	resent bool // an earlier send may be carried out as well
}

func (a *answer[T]) succeeded() bool { return a.there && a.err == nil }

// refused reports whether the node has certainly done nothing, nor will. If the command was resent, the first send may still
// be carried out.
func (a *answer[T]) refused() bool {
	return a.there && !a.resent && (outcomeOf(a.err) == heldByAnother || errors.As(a.err, new(*node.NotDone)))
}

// A tally counts the answers of all nodes to one operation.
type tally[T any] struct {
	r       *redlock
	op      string
	key     string
	read    func(node.Reply) (T, error)
	calls   []*node.Call // by node
	reports chan *node.Call
	answers []answer[T] // by node
	counts  [4]int      // by outcome
}

// ask sends an operation to all nodes at once. call makes the call for a node, and read reads its reply. Calls for
// one lock reach a node in order.
func ask[T any](
	ctx context.Context, r *redlock, op string, lock *target,
	call func(i int) *node.Call, read func(node.Reply) (T, error),
) *tally[T] {
	t := &tally[T]{
		r: r, op: op, key: lock.key, read: read,
		calls: make([]*node.Call, len(r.nodes)), answers: make([]answer[T], len(r.nodes)),
		reports: make(chan *node.Call, len(r.nodes)),
	}
	for i, n := range r.nodes {
		c := call(i)
		c.Key, c.Ordered, c.Timeout, c.Report, c.Index = lock.key, true, lock.timeout, t.reports, i
		t.calls[i] = c
		n.Post(ctx, c)
	}
	return t
}

// collect receives answers until decided reports true, all are there, or ctx ends.
func (t *tally[T]) collect(ctx context.Context, decided func() bool) {
	for !decided() && t.pending() > 0 {
		select {
		case c := <-t.reports:
			t.take(c)
		case <-ctx.Done():
			return
		}
	}
}

// take counts the reply to a call.
func (t *tally[T]) take(c *node.Call) outcome {
	a := &t.answers[c.Index]
	a.there = true
	r := c.Reply()
	a.value, a.err = t.read(r)
	a.resent = r.Resent
	o := outcomeOf(a.err)
	t.counts[o]++
	if o == noAnswer && node.Answered(a.err) { // the node has reported other failures
		t.r.report(t.r.names[c.Index], a.err)
	}
	return o
}

// pending returns how many nodes have not answered.
func (t *tally[T]) pending() int {
	return len(t.answers) - t.counts[done] - t.counts[heldByAnother] - t.counts[notHeld] - t.counts[noAnswer]
}

// certainly reports whether no quorum can be successful any more, and whether it is certain why: either enough nodes
// answered no to refuse the operation, or so many failed that the answer stays unknown.
func (t *tally[T]) certainly(no outcome) bool {
	most := len(t.answers) - t.r.quorum // how many nodes may fail
	if t.counts[done]+t.pending() >= t.r.quorum {
		return false
	}
	if no == heldByAnother {
		// A node has either granted or refused, so a quorum of answers decides.
		return t.counts[done]+t.counts[heldByAnother] >= t.r.quorum || t.counts[noAnswer]+t.counts[notHeld] > most
	}
	return t.counts[no] > most || t.counts[no]+t.pending() <= most
}

// refusedBesideSilence reports whether a quorum has answered an acquire, at least one node for another owner, and all
// nodes without an answer were silent at their last call.
func (t *tally[T]) refusedBesideSilence() bool {
	if t.counts[heldByAnother] == 0 || t.counts[done]+t.counts[heldByAnother] < t.r.quorum {
		return false
	}
	for i := range t.answers {
		if !t.answers[i].there && !t.r.nodes[i].Silent() {
			return false
		}
	}
	return true
}

// collectHeld collects the answers to an operation that fails on a node where the token does not hold the key.
func (t *tally[T]) collectHeld(ctx context.Context) error {
	t.collect(ctx, func() bool { return t.counts[done] >= t.r.quorum || t.certainly(notHeld) })
	switch {
	case t.counts[done] >= t.r.quorum:
		return nil
	case t.counts[notHeld] > len(t.answers)-t.r.quorum:
		return t.fail(ErrLost)
	case ctx.Err() != nil:
		return t.cut(ctx)
	}
	return t.fail(ErrNoQuorum)
}

// fail returns a QuorumError that matches err and has the answer of each node.
func (t *tally[T]) fail(err error) *QuorumError {
	e := &QuorumError{Op: t.op, Key: t.key, Need: t.r.quorum, Nodes: make([]error, len(t.answers)), names: t.r.names, err: err}
	for i := range t.answers {
		if e.Nodes[i] = t.answers[i].err; !t.answers[i].there {
			e.Nodes[i] = errNotWaitedFor
		}
	}
	return e
}

// cut returns the error of an operation that ctx ended. It is silent unless so many nodes failed that no quorum is left.
func (t *tally[T]) cut(ctx context.Context) error {
	failed, e := t.counts[noAnswer], t.fail(ErrNoQuorum)
	for i, c := range t.calls {
		if !t.answers[i].there {
			var silent bool
			if silent, e.Nodes[i] = c.Trouble(); !silent {
				failed++
			}
		}
	}
	return &node.CutShort{Ctx: node.CtxError(ctx), Trouble: e, Silent: failed <= len(t.answers)-t.r.quorum}
}

var errNotWaitedFor = errors.New("not waited for")

// soonest returns when a quorum of the nodes can be free at the earliest; 0 if that is unknown, or if it can be now.
func soonest(t *tally[acquireReply]) time.Duration {
	var free []time.Duration
	for i := range t.answers {
		switch a := &t.answers[i]; {
		case a.succeeded():
			free = append(free, 0)
		case a.there && outcomeOf(a.err) == heldByAnother && a.value.Left > 0:
			free = append(free, a.value.Left)
		}
	}
	if len(free) < t.r.quorum {
		return 0
	}
	slices.Sort(free)
	return free[t.r.quorum-1]
}

// holderIn returns the holder that most nodes named, or "".
func holderIn(t *tally[acquireReply]) (most string) {
	named := make(map[string]int)
	for i := range t.answers {
		if holder := t.answers[i].value.Holder; holder != "" {
			if named[holder]++; named[holder] > named[most] {
				most = holder
			}
		}
	}
	return most
}

// votes returns the votes for the fence of the nodes that were successful.
func votes[T any](t *tally[T], vote func(T) uint64) (all []uint64) {
	for i := range t.answers {
		if a := &t.answers[i]; a.succeeded() {
			all = append(all, vote(a.value))
		}
	}
	return all
}

// alreadyHeld reports whether the token had the key before on a node that granted it.
func alreadyHeld(t *tally[acquireReply]) bool {
	return slices.ContainsFunc(t.answers, func(a answer[acquireReply]) bool { return a.succeeded() && a.value.alreadyHeld })
}

// agreedStatus returns the status that a quorum of the answers agrees on: the holder, or that the key is free, and how long
// the holder has the key on a quorum. certain reports whether there is one.
func agreedStatus(t *tally[Status]) (st Status, certain bool) {
	ttls := make(map[string][]time.Duration) // by holder
	for i := range t.answers {
		if a := &t.answers[i]; a.succeeded() {
			ttls[a.value.Token] = append(ttls[a.value.Token], a.value.TTL)
		}
	}
	for holder, left := range ttls {
		if len(left) >= t.r.quorum {
			slices.Sort(left)
			st = Status{Held: holder != "", Token: holder, TTL: left[len(left)-t.r.quorum]}
			certain = true
		}
	}
	return st, certain
}
