package redlatch

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/quorum"
	"github.com/redlatch/redlatch/internal/rediserr"
	"github.com/redlatch/redlatch/internal/wire"
)

// NewRedlock returns a Locker that keeps each lock on a quorum, N/2+1, of N independent nodes, by
// the algorithm of "Distributed Locks with Redis":
//
//	acquire  SET key token NX PX ttl on all nodes at once; a quorum of grants is a lock
//	release  DEL key on all nodes, if it still holds the token
//
// It grants locks while a quorum of the nodes answers. It excludes other owners while no node loses
// data, fails over or has its clock stepped forward. A node that restarts without its data must stay
// away for the longest TTL. One slow, hung or dead node of five costs no time. A quorum also issues the
// fences, which grow with every grant. There is no queue: processes that wait poll, at the intervals of
// [WithPollInterval].
//
// The nodes must be independent: not replicas of each other, and no server twice, because it would vote
// twice. Each client may be of any kind. A client that fails over (Sentinel, Cluster) or moves keys
// (Ring) is a node that may lose data. opts are the defaults of the Locker. [WithOpTimeout] bounds a
// command on one node.
//
// The error is [ErrInvalid] for no client, more than 64, a nil client, an option that cannot work, or
// two clients of one server. Two clients have one server if they are the same, or have an address in
// common, even with different databases or dialers. NewRedlock does not notice a server with two
// addresses.
func NewRedlock(clients []redis.UniversalClient, opts ...Option) (Locker, error) {
	if err := checkNodes(clients); err != nil {
		return nil, wrap("new redlock", "", err)
	}
	r := &redlock{quorum: len(clients)/2 + 1, id: rand.Int64()}
	for i, client := range clients {
		r.nodes = append(r.nodes, node.New(client))
		r.names = append(r.names, nodeName(client, i))
		if kindOf(client) == cluster {
			r.kind = cluster
		}
	}
	return newEngine(r, traits{
		name: StrategyRedlock, clients: slices.Clone(clients), nodes: r.nodes, names: r.names,
		quorum: true, keeps: true,
	}, opts)
}

// checkNodes refuses clients that are no quorum.
func checkNodes(clients []redis.UniversalClient) error {
	if n := len(clients); n == 0 || n > quorum.Most {
		return invalid("%d clients: not from 1 to %d", n, quorum.Most)
	}
	for i, client := range clients {
		if err := checkClient(client); err != nil {
			return fmt.Errorf("node %d: %w", i, err)
		}
		same := func(other redis.UniversalClient) bool { return sameServer(client, other) }
		if j := slices.IndexFunc(clients[:i], same); j >= 0 {
			return invalid("nodes %d and %d are the same server", j, i)
		}
	}
	return nil
}

// redlock sends the commands that internal/quorum decides on, whose documentation has the
// algorithm. The engine reads the clock before an acquire, and judges the lease.
type redlock struct {
	nodes  []*node.Node
	names  []string // of the nodes
	quorum int
	kind   clientKind // cluster if at least one node is
	pending
	id any // a number of this Locker, which is the mark that it leaves where it is refused
}

func (r *redlock) adapt(cfg *config) error { return refuseBoth("redlock", cfg) }

func (r *redlock) keyOf(prefix, key string) (string, error) {
	return prefix + key, r.kind.check(prefix, key)
}

func (r *redlock) wordsOf(_, name string) words {
	return words{key: name, fences: wire.Companion("fence", name), others: wire.Companion("wanted", name)}
}

func (r *redlock) underWay() int { return r.and(r.nodes...) }

func (r *redlock) trouble(op op, p *params, since time.Duration) error {
	nodes := make([]error, len(r.nodes))
	for i, n := range r.nodes {
		nodes[i] = silence(n.Of(p.lock), since)
	}
	return r.failure(op, p, nodes, ErrNoQuorum)
}

// failure returns a QuorumError that matches err and has the answers of the nodes.
func (r *redlock) failure(op op, p *params, nodes []error, err error) error {
	return &QuorumError{Op: string(op), Key: p.key, Need: r.quorum, Nodes: nodes, names: r.names, err: err}
}

var quorumScripts = scripts{
	script("quorum_acquire.lua"), script("quorum_extend.lua"), script("quorum_release.lua"), lockScripts.inspect,
}

// command returns the command of an effect, and what reads its reply.
func (o *quorumOp) command(e quorum.Effect) (c *node.Call, read parse) {
	p := o.params
	switch e.Step {
	case quorum.Acquire:
		c = node.Eval(quorumScripts.acquire, 3, p.at.key, p.at.fences, p.at.others, &p.token, p.ttlWord())
		c.AppendLatest()
		c.Append(o.r.id)
		return c, readAcquire
	case quorum.Mint:
		return node.Eval(quorumScripts.extend, 2, p.at.key, p.at.fences, &p.token, p.ttlWord(), "mint"), readExtend
	case quorum.Raise:
		return node.Eval(quorumScripts.extend, 2, p.at.key, p.at.fences, &p.token, p.ttlWord(), e.Fence), readExtend
	case quorum.Extend, quorum.Restore:
		c = node.Eval(quorumScripts.extend, 2, p.at.key, p.at.fences, &p.token, p.ttlWord(), p.fence/wire.FencesOfTick)
		if e.Step == quorum.Restore {
			c.Append(p.restore.Milliseconds())
			c.AppendLatest()
		}
		return c, readExtend
	case quorum.Inspect:
		return node.Eval(quorumScripts.inspect, 1, p.at.key), readHolder
	}
	c = node.Eval(quorumScripts.release, 2, p.at.key, p.at.others, &p.token, o.r.id)
	c.Insists = true
	if p.keep > 0 {
		c.AppendLatest()
	}
	return keeping(c, p, readVoteOfRelease)
}

func readVoteOfRelease(r node.Reply) reply {
	answer, err := readRelease(r)
	return reply{contended: answer == 2, err: err}
}

func readHolder(r node.Reply) reply {
	got := readInspect(r)
	if got.err == nil {
		got.holder, got.left = string(got.seen.status.Token), got.seen.status.TTL
	}
	return got
}

// A tokenOps has the operations of one token on the nodes of a quorum. What they decide, and the
// order of their commands, is that of [quorum.Token].
type tokenOps struct {
	mu    sync.Mutex // guards token and its operations
	token quorum.Token
}

// event hands an event to the token under the mutex, and carries out its effects after unlocking.
func (b *tokenOps) event(ctx context.Context, event func(*quorum.Token) []quorum.Effect) {
	b.mu.Lock()
	effects := event(&b.token)
	b.mu.Unlock()
	for _, e := range effects {
		if o := e.Op.Of.(*quorumOp); e.Step == quorum.Finish {
			o.to.hear(o.reply())
		} else {
			o.send(ctx, e)
		}
	}
}

// A quorumOp is one operation on all nodes.
type quorumOp struct {
	quorum.Op
	r         *redlock
	op        op
	params    *params
	to        hearer
	errs      []error // by node: the error of the answer that counts
	contended bool    // a node has said that others want the key
}

var steps = map[op]quorum.Step{
	toAcquire: quorum.Acquire, toExtend: quorum.Extend, toAdopt: quorum.Mint,
	toRelease: quorum.Release, toInspect: quorum.Inspect,
}

func (r *redlock) do(ctx context.Context, op op, p *params, to hearer) {
	o := &quorumOp{r: r, op: op, params: p, to: to, errs: make([]error, len(r.nodes))}
	o.Of = o
	if p.tokenOps == nil { // of a token that nothing was sent for yet
		p.tokenOps = &tokenOps{token: quorum.New(len(r.nodes))}
	}
	silent := uint64(0)
	for i, n := range r.nodes {
		if is, _ := n.Of(p.lock).Health(); is {
			silent |= 1 << i
		}
	}
	step := steps[op]
	if op == toExtend && p.restore > 0 {
		step = quorum.Restore
	}
	p.tokenOps.event(ctx, func(t *quorum.Token) []quorum.Effect { return t.Begin(&o.Op, step, silent, nil) })
}

// send sends the command of an effect.
func (o *quorumOp) send(ctx context.Context, e quorum.Effect) {
	c, read := o.command(e)
	c.Timeout, c.Began, c.Urgent = o.params.timeout, o.params.began, o.op == toExtend
	if e.Step == quorum.Acquire {
		c.Abandoned, c.Spare = o.params.abandoned, true
	}
	c.Done = func(r node.Reply) {
		o.answered(ctx, e, r.Resent, read(r))
		o.r.done()
	}
	o.r.begin()
	o.r.nodes[e.Node].Of(o.params.lock).Post(ctx, c)
}

// answered hands an answer to the token.
func (o *quorumOp) answered(ctx context.Context, e quorum.Effect, resent bool, got reply) {
	err := got.err
	a := quorum.Answer{Outcome: outcomeOf(e.Step, err), Vote: got.tick, Holder: got.holder, Left: got.left}
	failed := a.Outcome == quorum.Failed
	if failed && rediserr.Answered(err) { // the node has reported other failures
		o.r.nodes[e.Node].Trouble(err)
	}
	b := o.params.tokenOps
	b.event(ctx, func(t *quorum.Token) []quorum.Effect {
		if o.Result == quorum.Undecided {
			o.errs[e.Node] = err
			o.contended = o.contended || got.contended
		}
		return t.Answer(e, a, nil)
	})
	if e.Step.Creates() && (resent || failed && !rediserr.Answered(err)) { // another send may be carried out until then
		o.r.begin()
		time.AfterFunc(o.params.timeout, func() { // posts, and ends
			defer o.r.done()
			b.event(ctx, func(t *quorum.Token) []quorum.Effect { return t.Settled(e.Node, nil) })
		})
	}
}

// outcomeOf returns the kind of an answer, whose error is err.
func outcomeOf(step quorum.Step, err error) quorum.Outcome {
	switch {
	case err == nil:
		return quorum.Done
	case errors.Is(err, ErrNotAcquired):
		return quorum.Held
	case errors.Is(err, ErrLost), step == quorum.Acquire && errors.As(err, new(*rediserr.NotDone)):
		return quorum.NotHeld
	}
	return quorum.Failed
}

// reply returns the outcome of an operation that is decided.
func (o *quorumOp) reply() reply {
	got := reply{err: o.outcome(), contended: o.contended, tick: o.Fence}
	holder, nodes := o.Holder()
	switch agreed := nodes >= o.r.quorum; {
	case o.op == toInspect && got.err == nil && agreed:
		got.seen = &inspection{status: Status{Held: true, Token: Token(holder), TTL: o.Left()}}
	case o.op == toAcquire && got.err != nil:
		got.holder, got.left, got.split = holder, o.Left(), o.Result == quorum.Refused && !agreed
	}
	return got
}

// failures are the errors of an operation that was not done.
var failures = [...]error{quorum.Refused: ErrNotAcquired, quorum.Lost: ErrLost, quorum.NoQuorum: ErrNoQuorum}

// outcome returns the error of an operation that is decided.
func (o *quorumOp) outcome() error {
	if o.Result == quorum.OK {
		return nil
	}
	for i, err := range o.errs {
		switch outcome := o.Outcome(i); {
		case outcome == quorum.Pending:
			o.errs[i] = errNotWaitedFor
		case outcome == quorum.NotHeld && err == nil: // it was not asked
			o.errs[i] = ErrLost
		}
	}
	err := failures[o.Result]
	if holder, _ := o.Holder(); o.Result == quorum.Refused && holder == "" {
		err = errSplit
	}
	return o.r.failure(o.op, o.params, o.errs, err)
}

var errSplit error = &sentinel{text: "no owner has a quorum of the nodes", is: ErrNotAcquired}

var errNotWaitedFor = errors.New("not waited for")
