package redlatch

import (
	"context"
	"errors"
	"slices"
	"time"
)

// An outcome is what a node's answer counts as.
type outcome int

const (
	yes  outcome = iota // done
	held                // another owner has the key
	gone                // the token does not hold the key
	mute                // no answer that tells
)

func outcomeOf(j *job) outcome {
	switch {
	case j.err == nil:
		return yes
	case errors.Is(j.err, ErrNotAcquired):
		return held
	case errors.Is(j.err, ErrLost):
		return gone
	}
	return mute
}

// A tally counts the answers of all nodes to one question.
type tally struct {
	op      string
	claim   *claim
	quorum  int
	jobs    []*job
	reports chan *job
	answers []*job // by node; nil: none yet
	counts  [4]int // by outcome
}

// ask puts op to all nodes at once. What is asked about one key reaches a node in order.
func (r *redlock) ask(ctx context.Context, name string, c *claim, op operation, f form) *tally {
	t := &tally{
		op: name, claim: c, quorum: r.quorum,
		jobs: make([]*job, len(r.nodes)), answers: make([]*job, len(r.nodes)),
		reports: make(chan *job, len(r.nodes)),
	}
	f.ordered, f.report = true, t.reports
	for i, n := range r.nodes {
		f.index = i
		t.jobs[i] = n.start(ctx, op, c, f)
	}
	return t
}

// collect takes answers until decided, all are there, or ctx ends. decided sees every answer.
func (t *tally) collect(ctx context.Context, decided func() bool) {
	for !decided() && t.pending() > 0 {
		select {
		case j := <-t.reports:
			t.answers[j.index] = j
			t.counts[outcomeOf(j)]++
		case <-ctx.Done():
			return
		}
	}
}

// count returns how many nodes answered with o.
func (t *tally) count(o outcome) int { return t.counts[o] }

// pending returns how many nodes have not answered.
func (t *tally) pending() int {
	return len(t.answers) - t.counts[yes] - t.counts[held] - t.counts[gone] - t.counts[mute]
}

// certainly reports whether no quorum can be done any more and it is certain why: so many nodes
// said no that the answer is no, or so many failed that nobody can tell.
func (t *tally) certainly(no outcome) bool {
	most := len(t.answers) - t.quorum // so many may be missing
	if t.counts[yes]+t.pending() >= t.quorum {
		return false
	}
	if no == held {
		// An answer is granted or held: a quorum of answers tells.
		return t.counts[yes]+t.counts[held] >= t.quorum || t.counts[mute]+t.counts[gone] > most
	}
	return t.counts[no] > most || t.counts[no]+t.pending() <= most
}

// refusedBesideSilence reports whether a quorum has answered an acquire, and some of it for another owner, while
// the nodes that are left were silent when they were last asked.
func (t *tally) refusedBesideSilence(nodes []*node) bool {
	if t.counts[held] == 0 || t.counts[yes]+t.counts[held] < t.quorum {
		return false
	}
	for i, j := range t.answers {
		if j == nil && !nodes[i].crew.silent() {
			return false
		}
	}
	return true
}

// fail returns the error that says what each node answered.
func (t *tally) fail(err error) error {
	e := &QuorumError{Op: t.op, Key: t.claim.key, Need: t.quorum, Nodes: make([]error, len(t.answers)), err: err}
	for i, j := range t.answers {
		if j == nil {
			e.Nodes[i] = errNoAnswer
		} else {
			e.Nodes[i] = j.err
		}
	}
	return e
}

var errNoAnswer = errors.New("not waited for")

// soonest returns when a quorum of the nodes can be free at the earliest, as far as their answers
// tell; 0 when they do not, or when it can be at once.
func (t *tally) soonest() time.Duration {
	var free []time.Duration
	for _, j := range t.answers {
		switch {
		case j == nil:
		case j.err == nil:
			free = append(free, 0)
		case outcomeOf(j) == held && j.grant.left > 0:
			free = append(free, j.grant.left)
		}
	}
	if len(free) < t.quorum {
		return 0
	}
	slices.Sort(free)
	return free[t.quorum-1]
}
