package redlatch

import (
	"context"
	"errors"
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
	op     op
	params *params
	end    time.Time // when the lease ends that the operation is about: no counter is raised then
	done   func(reply)
	errs   []error // by node: of the answer that counts
	wanted bool    // a node has said that others want the key
}

func (r *redlock) do(ctx context.Context, op op, p *params, done func(reply)) {
	o := &inquiry{r: r, op: op, params: p, end: time.Now().Add(p.ttl), done: done, errs: make([]error, len(r.nodes))}
	o.Of = o
	step := quorum.Extend
	switch op {
	case toAcquire:
		p.ballot, step = r.ballot(), quorum.Acquire
	case toAdopt:
		p.ballot, step = r.ballot(), quorum.Mint
	case toInspect:
		p.ballot, step = r.ballot(), quorum.Inspect
	case toRelease:
		step = quorum.Release
		if p.ballot == nil { // of a keeper, whose value is a token of its own
			p.ballot = r.ballot()
		}
	default:
		if p.restoreMS > 0 {
			step = quorum.Restore
		}
	}
	silent := uint64(0)
	for i, n := range r.nodes {
		if is, _ := n.Health(); is {
			silent |= 1 << i
		}
	}
	p.ballot.mu.Lock()
	effects := p.ballot.token.Begin(&o.Op, step, silent, nil)
	p.ballot.mu.Unlock()
	carryOut(ctx, effects)
}

// carryOut sends the commands that a token wants, and ends operations.
func carryOut(ctx context.Context, effects []quorum.Effect) {
	for _, e := range effects {
		if o := e.Op.Of.(*inquiry); e.Step == quorum.Finish {
			o.done(o.reply())
		} else {
			o.send(ctx, e)
		}
	}
}

// send sends the command of an effect.
func (o *inquiry) send(ctx context.Context, e quorum.Effect) {
	c, read := o.command(e)
	c.Timeout = o.params.timeout
	c.Done = func(r node.Reply) { o.answered(ctx, e, r.Resent, read(r)) }
	o.r.nodes[e.Node].Post(ctx, c)
}

// answered hands an answer to the token.
func (o *inquiry) answered(ctx context.Context, e quorum.Effect, resent bool, got reply) {
	err := got.err
	a := quorum.Answer{Outcome: outcomeOf(resent, err), Vote: got.fence, Holder: got.holder, Left: got.left}
	failed := a.Outcome == quorum.Failed
	if failed && node.Answered(err) { // the node has reported other failures
		o.r.report(o.r.names[e.Node], err)
	}
	b := o.params.ballot
	var effects []quorum.Effect
	b.mu.Lock()
	if o.Result() == quorum.Undecided {
		o.errs[e.Node] = err
		o.wanted = o.wanted || got.wanted
	}
	if e.Step == quorum.Raise && time.Now().After(o.end) {
		effects = o.Expire(effects)
	}
	effects = b.token.Answer(e, a, effects)
	b.mu.Unlock()
	carryOut(ctx, effects)

	if e.Step.Creates() && (resent || failed && !node.Answered(err)) { // another send may be carried out until then
		time.AfterFunc(o.params.timeout, func() { // posts, and ends
			b.mu.Lock()
			effects := b.token.Settled(e.Node, nil)
			b.mu.Unlock()
			carryOut(ctx, effects)
		})
	}
}

// outcomeOf returns what the answer of a node was.
func outcomeOf(resent bool, err error) quorum.Outcome {
	switch {
	case err == nil:
		return quorum.Done
	case errors.Is(err, errRestored):
		return quorum.Restored
	case errors.Is(err, ErrNotAcquired):
		return quorum.Held
	case errors.Is(err, ErrLost):
		return quorum.NotHeld
	case !resent && errors.As(err, new(*node.NotDone)):
		return quorum.NotDone
	}
	return quorum.Failed
}

// reply returns the outcome of an operation that is decided.
func (o *inquiry) reply() reply {
	got := reply{err: o.outcome(), wanted: o.wanted, fence: o.Fence() * fencesOfTick}
	switch {
	case o.op == toInspect && got.err == nil:
		got.status.Token, got.status.TTL, _ = o.Status()
		got.status.Held = got.status.Token != ""
	case o.op == toAcquire && got.err != nil:
		got.split, got.left = o.Split(), o.Soonest()
		got.holder, _ = o.Holder()
	}
	return got
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
	e := &QuorumError{Op: string(o.op), Key: o.params.key, Need: len(o.errs)/2 + 1, Nodes: o.errs, names: o.r.names, err: err}
	for i := range e.Nodes {
		if o.Outcome(i) == quorum.Pending {
			e.Nodes[i] = errNotWaitedFor
		}
	}
	return e
}

var errNotWaitedFor = errors.New("not waited for")
