package redlatch

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/node"
)

// A verdict is the kind of a node's answer.
type verdict int

const (
	successful    verdict = iota
	heldByAnother         // another owner has the key
	notHeld               // the token does not hold the key
	noAnswer              // any other error
)

func verdictOf(err error) verdict {
	switch {
	case err == nil:
		return successful
	case errors.Is(err, ErrNotAcquired):
		return heldByAnother
	case errors.Is(err, ErrLost):
		return notHeld
	}
	return noAnswer
}

// An answer is the reply of one node. The other fields are valid if there is set.
type answer[T any] struct {
	there  bool
	value  T
	err    error
	resent bool // an earlier send may be carried out as well
	votes  bool // the command may have created a vote
}

func (a *answer[T]) succeeded() bool { return a.there && a.err == nil }

// A tally counts the answers of all nodes to one operation. It calls then once: when decided reports true, or all answers
// are there. Nothing is counted after that.
type tally[T any] struct {
	r       *redlock
	op      string
	lock    *target
	read    func(node.Reply) (T, error)
	decided func() bool
	then    func()

	// overtook reports whether an acquire has overtaken a release of this process on node i. Then it calls again later. nil: none can.
	overtook func(i int, value T, err error, again func(within time.Duration)) bool
	call     func() *node.Call

	mu      sync.Mutex  // guards the fields below, until then runs
	answers []answer[T] // by node
	counts  [4]int      // by verdict
	over    bool
}

func newTally[T any](r *redlock, op string, lock *target, read func(node.Reply) (T, error)) *tally[T] {
	return &tally[T]{r: r, op: op, lock: lock, read: read, answers: make([]answer[T], len(r.nodes))}
}

// ask sends a call to all nodes at once. If it may create votes, order is the ballot of the token.
func (t *tally[T]) ask(ctx context.Context, order *ballot, call func() *node.Call) {
	if !order.begin() {
		t.then() // the token was released
		return
	}
	t.call = call
	for i := range t.r.nodes {
		t.askOne(ctx, i, call(), order)
	}
}

// askOne sends a call to one node.
func (t *tally[T]) askOne(ctx context.Context, i int, c *node.Call, order *ballot) {
	c.Timeout = cmp.Or(c.Timeout, t.lock.timeout)
	c.Done = func(r node.Reply) {
		value, err := t.read(r)
		if t.overtook != nil && !r.Resent && t.overtook(i, value, err, func(within time.Duration) {
			again := t.call()
			again.Timeout = within
			t.askOne(ctx, i, again, order)
		}) {
			return
		}
		if t.op == "release" && t.lock.ballot.left(i) {
			t.r.leaving.remove(t.lock.token)
		}
		votes := t.mayVote(r, err)
		t.take(i, answer[T]{true, value, err, r.Resent, votes})
		if order != nil && r.Resent && t.op == "extend" { // the first send may restore the lock until then
			time.AfterFunc(t.lock.timeout, func() { // posts, and ends
				if order.released() {
					t.r.releaseOn(ctx, i, t.lock, nil)
				}
			})
		}
		order.end(i, votes)
	}
	t.r.nodes[i].Post(ctx, c)
}

// mayVote reports whether a command with the reply r and the error err may have created a vote. If it was resent, the first send
// may still do so.
func (t *tally[T]) mayVote(r node.Reply, err error) bool {
	switch {
	case r.Resent, errors.Is(err, errRestored):
		return true
	case err == nil:
		return t.op == "acquire"
	}
	return !errors.Is(err, ErrNotAcquired) && !errors.Is(err, ErrLost) && !errors.As(err, new(*node.NotDone))
}

// take counts the answer of a node.
func (t *tally[T]) take(i int, a answer[T]) {
	t.mu.Lock()
	v := verdictOf(a.err)
	decides := false
	if !t.over {
		t.answers[i] = a
		t.counts[v]++
		t.over = t.decided() || t.pending() == 0
		decides = t.over
	}
	t.mu.Unlock()
	if v == noAnswer && node.Answered(a.err) { // the node has reported other failures
		t.r.report(t.r.names[i], a.err)
	}
	if decides {
		t.then()
	}
}

// pending returns how many nodes have not answered.
func (t *tally[T]) pending() int {
	return len(t.answers) - t.counts[successful] - t.counts[heldByAnother] - t.counts[notHeld] - t.counts[noAnswer]
}

// certainly reports whether no quorum can be successful any more, and whether it is certain why: either enough nodes
// answered no to refuse the operation, or so many failed that the answer stays unknown.
func (t *tally[T]) certainly(no verdict) bool {
	most := len(t.answers) - t.r.quorum // how many nodes may fail
	if t.counts[successful]+t.pending() >= t.r.quorum {
		return false
	}
	if no == heldByAnother {
		// A node has either granted or refused, so a quorum of answers decides.
		return t.counts[successful]+t.counts[heldByAnother] >= t.r.quorum || t.counts[noAnswer]+t.counts[notHeld] > most
	}
	return t.counts[no] > most || t.counts[no]+t.pending() <= most
}

// refusedBesideSilence reports whether a quorum has answered an acquire, at least one node for another owner, and all
// nodes without an answer were silent at their last call.
func (t *tally[T]) refusedBesideSilence() bool {
	if t.counts[heldByAnother] == 0 || t.counts[successful]+t.counts[heldByAnother] < t.r.quorum {
		return false
	}
	for i := range t.answers {
		if !t.answers[i].there && !t.r.nodes[i].Silent() {
			return false
		}
	}
	return true
}

// refused returns why an acquire was not granted, or nil.
func (t *tally[T]) refused() error {
	switch {
	case t.counts[successful] >= t.r.quorum:
		return nil
	case t.counts[successful]+t.counts[heldByAnother] >= t.r.quorum:
		return t.fail(ErrNotAcquired)
	}
	return t.fail(ErrNoQuorum)
}

// heldOrNot decides an operation that fails on a node where the token does not hold the key.
func (t *tally[T]) heldOrNot() bool {
	return t.counts[successful] >= t.r.quorum || t.certainly(notHeld)
}

// held returns the outcome of such an operation.
func (t *tally[T]) held() error {
	switch {
	case t.counts[successful] >= t.r.quorum:
		return nil
	case t.counts[notHeld] > len(t.answers)-t.r.quorum:
		return t.fail(ErrLost)
	}
	return t.fail(ErrNoQuorum)
}

// fail returns a QuorumError that matches err and has the answer of each node.
func (t *tally[T]) fail(err error) *QuorumError {
	e := &QuorumError{Op: t.op, Key: t.lock.key, Need: t.r.quorum, Nodes: make([]error, len(t.answers)), names: t.r.names, err: err}
	for i := range t.answers {
		if e.Nodes[i] = t.answers[i].err; !t.answers[i].there {
			e.Nodes[i] = errNotWaitedFor
		}
	}
	return e
}

var errNotWaitedFor = errors.New("not waited for")

// soonest returns when a quorum of the nodes can be free at the earliest; 0 if that is unknown, or if it can be now.
func soonest(t *tally[acquireReply]) time.Duration {
	var free []time.Duration
	for i := range t.answers {
		switch a := &t.answers[i]; {
		case a.succeeded():
			free = append(free, 0)
		case a.there && verdictOf(a.err) == heldByAnother && a.value.Left > 0:
			free = append(free, a.value.Left)
		}
	}
	if len(free) < t.r.quorum {
		return 0
	}
	slices.Sort(free)
	return free[t.r.quorum-1]
}

// holderIn returns the holder that most nodes named, or "", and whether a quorum did.
func holderIn(t *tally[acquireReply]) (most string, owns bool) {
	named := make(map[string]int)
	for i := range t.answers {
		if holder := t.answers[i].value.Holder; holder != "" {
			if named[holder]++; named[holder] > named[most] {
				most = holder
			}
		}
	}
	return most, named[most] >= t.r.quorum
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

// resent reports whether an earlier send may be carried out on a node that has answered.
func (t *tally[T]) resent() bool {
	return slices.ContainsFunc(t.answers, func(a answer[T]) bool { return a.resent })
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
