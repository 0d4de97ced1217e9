package redlatch

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/node"
)

// An outcome is what a node's answer counts as.
type outcome int

const (
	yes           outcome = iota // done
	heldByAnother                // another owner has the key
	notHeld                      // the token does not hold the key
	noAnswer                     // nothing that tells
)

func outcomeOf(err error) outcome {
	switch {
	case err == nil:
		return yes
	case errors.Is(err, ErrNotAcquired):
		return heldByAnother
	case errors.Is(err, ErrLost):
		return notHeld
	}
	return noAnswer
}

// An answer is what one node said. It counts once it is there.
type answer[T any] struct {
	there bool
	value T
	err   error
}

func (a *answer[T]) done() bool { return a.there && a.err == nil }

// A tally counts the answers of all nodes to one question.
type tally[T any] struct {
	op      string
	key     string
	names   []string // of the nodes
	told    func(node string, err error)
	quorum  int
	read    func(i int, r node.Reply) (T, error)
	calls   []*node.Call // by node
	reports chan *node.Call
	answers []answer[T] // by node
	counts  [4]int      // by outcome
}

// ask puts a question to all nodes at once: call makes that for a node, and read its answer. What is asked
// about one key reaches a node in order.
func ask[T any](ctx context.Context, r *redlock, op, key string, call func(i int) *node.Call, read func(i int, r node.Reply) (T, error)) *tally[T] {
	t := &tally[T]{
		op: op, key: key, names: r.names, told: r.told, quorum: r.quorum, read: read,
		calls: make([]*node.Call, len(r.nodes)), answers: make([]answer[T], len(r.nodes)),
		reports: make(chan *node.Call, len(r.nodes)),
	}
	for i, n := range r.nodes {
		c := call(i)
		c.Key, c.Ordered, c.Report, c.Index = key, true, t.reports, i
		t.calls[i] = c
		n.Post(ctx, c)
	}
	return t
}

// collect takes answers until decided, all are there, or ctx ends. decided sees every answer.
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

// take counts the answer of a call.
func (t *tally[T]) take(c *node.Call) outcome {
	a := &t.answers[c.Index]
	a.there = true
	a.value, a.err = t.read(c.Index, c.Reply())
	o := outcomeOf(a.err)
	t.counts[o]++
	if o == noAnswer && node.Answered(a.err) { // of the others the node has told
		t.told(t.names[c.Index], a.err)
	}
	return o
}

// count returns how many nodes answered with o.
func (t *tally[T]) count(o outcome) int { return t.counts[o] }

// pending returns how many nodes have not answered.
func (t *tally[T]) pending() int {
	return len(t.answers) - t.counts[yes] - t.counts[heldByAnother] - t.counts[notHeld] - t.counts[noAnswer]
}

// certainly reports whether no quorum can be done any more and it is certain why: so many nodes
// said no that the answer is no, or so many failed that nobody can tell.
func (t *tally[T]) certainly(no outcome) bool {
	most := len(t.answers) - t.quorum // so many may be missing
	if t.counts[yes]+t.pending() >= t.quorum {
		return false
	}
	if no == heldByAnother {
		// An answer is granted or held: a quorum of answers tells.
		return t.counts[yes]+t.counts[heldByAnother] >= t.quorum || t.counts[noAnswer]+t.counts[notHeld] > most
	}
	return t.counts[no] > most || t.counts[no]+t.pending() <= most
}

// refusedBesideSilence reports whether a quorum has answered an acquire, and some of it for another owner, while
// the nodes that are left were silent when they were last asked.
func (t *tally[T]) refusedBesideSilence(nodes []*node.Node) bool {
	if t.counts[heldByAnother] == 0 || t.counts[yes]+t.counts[heldByAnother] < t.quorum {
		return false
	}
	for i := range t.answers {
		if !t.answers[i].there && !nodes[i].Silent() {
			return false
		}
	}
	return true
}

// fail returns the error that says what each node answered.
func (t *tally[T]) fail(err error) error {
	e := &QuorumError{Op: t.op, Key: t.key, Need: t.quorum, Nodes: make([]error, len(t.answers)), names: t.names, err: err}
	for i := range t.answers {
		if e.Nodes[i] = t.answers[i].err; !t.answers[i].there {
			e.Nodes[i] = errNotWaitedFor
		}
	}
	return e
}

var errNotWaitedFor = errors.New("not waited for")

// soonest returns when a quorum of the nodes can be free at the earliest, as far as their answers
// tell; 0 when they do not, or when it can be at once.
func soonest(t *tally[acquireReply]) time.Duration {
	var free []time.Duration
	for i := range t.answers {
		switch a := &t.answers[i]; {
		case a.done():
			free = append(free, 0)
		case a.there && outcomeOf(a.err) == heldByAnother && a.value.left > 0:
			free = append(free, a.value.left)
		}
	}
	if len(free) < t.quorum {
		return 0
	}
	slices.Sort(free)
	return free[t.quorum-1]
}

// holderIn returns the first holder that a node named, or nothing.
func holderIn(t *tally[acquireReply]) string {
	for i := range t.answers {
		if a := &t.answers[i]; a.there && a.value.holder != "" {
			return a.value.holder
		}
	}
	return ""
}
