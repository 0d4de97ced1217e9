package redlatch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/quorum"
)

// A ballot has the operations of one token on the nodes of a quorum. What they decide, and the order of their commands, is
// that of [quorum.Token]. An answer is handed to it under the mutex, and what it wants done is done after the mutex was unlocked.
type ballot struct {
	mu    sync.Mutex // guards token and its operations
	token quorum.Token
}

func (r *redlock) ballot() *ballot { return &ballot{token: quorum.New(len(r.nodes))} }

// An inquiry is an operation on a quorum.
type inquiry struct {
	quorum.Op
	r      *redlock
	name   string // of the operation, in errors
	target *target
	end    time.Time // when the lease ends that the operation is about: no counter is raised then
	call   func() *node.Call
	read   func(node.Reply) (quorum.Answer, error)
	then   func(o *inquiry, err error) // gets the outcome
	errs   []error                     // by node: of the answer that counts
	wanted bool                        // a node has said that others want the key
}

// begin begins o.
func (r *redlock) begin(ctx context.Context, step quorum.Step, o inquiry) {
	o.Of, o.r, o.errs = &o, r, make([]error, len(r.nodes))
	silent := uint64(0)
	for i, n := range r.nodes {
		if n.Silent() {
			silent |= 1 << i
		}
	}
	b := o.target.ballot
	b.mu.Lock()
	effects := b.token.Begin(&o.Op, step, silent, nil)
	b.mu.Unlock()
	carryOut(ctx, effects)
}

// carryOut sends the commands that a token wants, and ends operations.
func carryOut(ctx context.Context, effects []quorum.Effect) {
	for _, e := range effects {
		o := e.Op.Of.(*inquiry)
		switch e.Step {
		case quorum.Finish:
			o.then(o, o.outcome())
			continue
		case quorum.Release:
			o.r.leaving.begin(o.target.token, e.Node)
		}
		o.send(ctx, e, o.target.timeout)
	}
}

// command returns the command of an effect, and what reads its reply.
func (o *inquiry) command(e quorum.Effect) (*node.Call, func(node.Reply) (quorum.Answer, error)) {
	switch e.Step {
	case o.Step():
		return o.call(), o.read
	case quorum.Raise:
		return raiseCall(o.target, e.Fence), readVote(compared)
	}
	return quorumReleaseCall(&releaseParams{target: o.target}), readVote(readRelease)
}

// send sends the command of an effect. An acquire that is refused by a token that this process is just releasing has overtaken
// that release, and is sent again behind it.
func (o *inquiry) send(ctx context.Context, e quorum.Effect, within time.Duration) {
	end := time.Now().Add(within)
	c, read := o.command(e)
	c.Timeout = within
	c.Done = func(r node.Reply) {
		a, err := read(r)
		a.Outcome = answerOf(r, err)
		if e.Step == quorum.Acquire && a.Outcome == quorum.Held && !r.Resent {
			again := func() { o.send(ctx, e, max(time.Until(end), time.Millisecond)) }
			if time.Now().Before(end) && o.r.leaving.after(a.Holder, e.Node, again) {
				return
			}
		}
		o.answered(ctx, e, a, r, err)
	}
	o.r.nodes[e.Node].Post(ctx, c)
}

// answered hands an answer to the token.
func (o *inquiry) answered(ctx context.Context, e quorum.Effect, a quorum.Answer, r node.Reply, err error) {
	failed := a.Outcome == quorum.Failed
	if failed && node.Answered(err) { // the node has reported other failures
		o.r.report(o.r.names[e.Node], err)
	}
	b := o.target.ballot
	var effects []quorum.Effect
	b.mu.Lock()
	if o.Result() == quorum.Undecided {
		o.errs[e.Node] = err
		o.wanted = o.wanted || e.Step == quorum.Release && a.Vote == wantedByOthers
	}
	if e.Step == quorum.Raise && time.Now().After(o.end) {
		effects = o.Expire(effects)
	}
	effects = b.token.Answer(e, a, effects)
	b.mu.Unlock()
	if e.Step == quorum.Release {
		o.r.leaving.end(o.target.token, e.Node)
	}
	carryOut(ctx, effects)

	if e.Step.Creates() && (r.Resent || failed && !node.Answered(err)) { // another send may be carried out until then
		time.AfterFunc(o.target.timeout, func() { // posts, and ends
			b.mu.Lock()
			effects := b.token.Settled(e.Node, nil)
			b.mu.Unlock()
			carryOut(ctx, effects)
		})
	}
}

// answerOf returns what the answer of a node was.
func answerOf(r node.Reply, err error) quorum.Outcome {
	switch {
	case err == nil:
		return quorum.Done
	case errors.Is(err, errRestored):
		return quorum.Restored
	case errors.Is(err, ErrNotAcquired):
		return quorum.Held
	case errors.Is(err, ErrLost):
		return quorum.NotHeld
	case !r.Resent && errors.As(err, new(*node.NotDone)):
		return quorum.NotDone
	}
	return quorum.Failed
}

// outcome returns the error of an operation that is decided.
func (o *inquiry) outcome() error {
	switch o.Result() {
	case quorum.OK:
		return nil
	case quorum.Refused:
		return o.fail(ErrNotAcquired)
	case quorum.Lost:
		return o.fail(ErrLost)
	}
	return o.fail(ErrNoQuorum)
}

// fail returns a QuorumError that matches err and has the answer of each node.
func (o *inquiry) fail(err error) error {
	e := &QuorumError{Op: o.name, Key: o.target.key, Need: len(o.errs)/2 + 1, Nodes: o.errs, names: o.r.names, err: err}
	for i := range e.Nodes {
		if o.Outcome(i) == quorum.Pending {
			e.Nodes[i] = errNotWaitedFor
		}
	}
	return e
}

var errNotWaitedFor = errors.New("not waited for")

// leaving has the releases of a process that are under way on a quorum, with what waits for them.
type leaving struct {
	mu       sync.Mutex // guards releases
	releases map[departure][]func()
}

// A departure is the release of a token on one node.
type departure struct {
	token string
	node  int
}

func (l *leaving) begin(token string, node int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := departure{token, node}
	if _, ok := l.releases[d]; !ok { // else an earlier one is under way
		l.releases[d] = nil
	}
}

// after has f called at the end of a release. It reports false if there is none.
func (l *leaving) after(token string, node int, f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := departure{token, node}
	waiting, ok := l.releases[d]
	if ok {
		l.releases[d] = append(waiting, f)
	}
	return ok
}

func (l *leaving) end(token string, node int) {
	l.mu.Lock()
	waiting := l.releases[departure{token, node}]
	delete(l.releases, departure{token, node})
	l.mu.Unlock()
	for _, f := range waiting {
		f()
	}
}

var (
	quorumScripts = scripts{
		acquire: script("quorum_acquire.lua"),
		extend:  script("quorum_extend.lua"),
		release: script("quorum_release.lua"),
		inspect: lockScripts.inspect,
	}
	raiseScript = script("quorum_raise.lua")
)

// quorumReleaseCall deletes the lock, or keeps it for some time.
func quorumReleaseCall(p *releaseParams) *node.Call {
	return p.released(node.Eval(quorumScripts.release, 2, &p.key, &p.wanted, &p.token))
}

// raiseCall returns the call that raises a fence counter, if the token holds the lock.
func raiseCall(p *target, counter uint64) *node.Call {
	return node.Eval(raiseScript, 2, &p.key, &p.fences, &p.token, &counter)
}

// readVote reads a reply that is a number.
func readVote(read func(node.Reply) (int64, error)) func(node.Reply) (quorum.Answer, error) {
	return func(r node.Reply) (quorum.Answer, error) {
		n, err := read(r)
		return quorum.Answer{Vote: uint64(max(n, 0))}, err
	}
}

// wantedByOthers is the reply of quorum_release.lua if somebody wants the lock.
const wantedByOthers = 2

// readRenewal reads the reply of quorum_extend.lua to a renewal.
func readRenewal(r node.Reply) (quorum.Answer, error) {
	answer, err := readExtend(r)
	if answer == 2 {
		err = errRestored
	}
	return quorum.Answer{Vote: answer}, err
}

// errRestored is the answer of a node that had lost the lock and has it again.
var errRestored = fmt.Errorf("%w", errDeleted)
