package redlatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/node"
)

// The algorithm of "Distributed Locks with Redis", over N independent nodes:
//
//  1. Read the clock.
//  2. Ask all nodes for the lock at once, with one token, each within a short timeout.
//  3. The lock is granted if a quorum, N/2+1 of the configured nodes, granted it before the lease, counted from
//     step 1, has ended. (The engine does step 1 and judges the lease.)
//  4. It is valid for the TTL, less the time since step 1, less the drift.
//  5. If it was not granted, release it on all nodes, including those that have not answered.
//
// The page leaves open what to do about
//
//  - late replies. On each node the commands of this process for one key are ordered: each is sent when the one
//    before it is done or has timed out. So a release follows its acquire. An acquire that is done even later is
//    released when its reply comes. A late vote for a granted lock is kept until Unlock.
//  - slow nodes. The outcome is certain once a quorum has granted, or once none can any more. Nobody waits for
//    further nodes then. If other owners have votes, nobody waits for nodes that were silent at the last call
//    either: two attempts that wait for them keep each other out.
//  - fencing tokens. Step 3 ends when a quorum agrees on one, see agree.

// NewRedlock returns a Locker that keeps each lock on a quorum, N/2+1, of N independent nodes, by the algorithm of
// "Distributed Locks with Redis":
//
//	acquire  SET key token NX PX ttl on all nodes at once; a quorum of grants is a lock
//	release  DEL key on all nodes, if it still holds the token
//
// It grants locks while a quorum of the nodes answers. It excludes other owners while no node loses data, fails over
// or has its clock stepped forward: a node that restarts without its data must stay away for the longest TTL. One
// slow, hung or dead node of five costs no time. A quorum also issues the fences, which grow with every grant. There is
// no queue: processes that wait poll, at the intervals of [WithPollInterval].
//
// The nodes must be independent: not replicas of each other, and no server twice, since it would vote twice. Each client
// may be of any kind, but one that fails over (Sentinel, Cluster) or moves keys (Ring) is a node that may lose data.
// opts are the defaults of the Locker. [WithOpTimeout] bounds a command on one node.
//
// The error is ErrInvalidOption for no client, a nil client, an option that cannot work, or two clients of one server:
// one client twice, or two that have an address in common, even with different databases or dialers. A server with two
// addresses is not noticed.
func NewRedlock(clients []redis.UniversalClient, opts ...Option) (Locker, error) {
	if len(clients) == 0 {
		return nil, wrap("new redlock", "", invalid("no clients"))
	}
	r := &redlock{quorum: len(clients)/2 + 1}
	for i, client := range clients {
		if err := checkClient(client); err != nil {
			return nil, wrap("new redlock", "", fmt.Errorf("node %d: %w", i, err))
		}
		for j, other := range clients[:i] {
			if sameServer(client, other) {
				return nil, wrap("new redlock", "", invalid("nodes %d and %d are the same server", j, i))
			}
		}
		r.nodes = append(r.nodes, node.New(client))
		r.names = append(r.names, nodeName(client, i))
		if kindOf(client) == cluster {
			r.kind = cluster
		}
	}
	return newEngine(r, opts)
}

type redlock struct {
	nodes  []*node.Node
	names  []string                     // of the nodes
	report func(node string, err error) // reports a node that failed
	quorum int
	kind   kind // cluster if at least one node is
}

func (r *redlock) name() string { return "redlock" }

func (r *redlock) habits() habits { return habits{freshTokens: true, tells: true, keeps: true} }

func (r *redlock) check(cfg *config) error { return refuseReplicas(r, cfg) }

func (r *redlock) place(prefix, key string) (place, error) {
	p := place{key: prefix + key}
	p.fences, p.wanted = companion("fence", p.key), companion("wanted", p.key)
	return p, r.kind.check(p.key)
}

func (r *redlock) clients() (all []redis.UniversalClient) {
	for _, n := range r.nodes {
		all = append(all, n.Client())
	}
	return all
}

func (r *redlock) onTrouble(report func(node string, err error)) {
	r.report = report
	for i, n := range r.nodes {
		n.Trouble = func(err error) { report(r.names[i], err) }
	}
}

// ready returns an error if ctx has ended. Nothing is sent to the nodes then.
func ready(ctx context.Context) error {
	if ctx.Err() != nil {
		return &node.NotDone{Err: node.CtxError(ctx)}
	}
	return nil
}

func (r *redlock) acquire(ctx context.Context, p *leaseParams) (acquireReply, error) {
	if err := ready(ctx); err != nil {
		return acquireReply{}, err
	}
	// 2. All nodes at once.
	t := ask(ctx, r, "acquire", &p.target, func(i int) *node.Call {
		c := node.Eval(quorumScripts.acquire, 3, &p.key, &p.fences, &p.wanted, &p.token, &p.ttlMS)
		c.Late = r.late(ctx, i, p)
		return c
	}, readAcquire)
	t.collect(ctx, func() bool {
		return t.counts[done] >= r.quorum || // 3. A quorum granted,
			t.certainly(heldByAnother) || // or it is certain that none can and why,
			t.refusedBesideSilence() // or only silent nodes are left.
	})
	err := r.refused(ctx, t)
	var fence uint64
	if err == nil {
		fence, err = r.agree(ctx, &p.target, p.ttl, votes(t, func(got acquireReply) uint64 { return got.fence }))
	}
	if err == nil {
		for i, c := range t.calls {
			if !t.answers[i].there {
				c.Unwatch()
			}
		}
		return acquireReply{fence: fence, alreadyHeld: alreadyHeld(t)}, nil
	}
	// 5. Not granted: release it.
	r.takeBack(ctx, p, t)
	var got acquireReply
	got.Left, got.Holder = soonest(t), holderIn(t)
	return got, err
}

// refused returns why an acquire was not granted, or nil.
func (r *redlock) refused(ctx context.Context, t *tally[acquireReply]) error {
	switch {
	case t.counts[done] >= r.quorum:
		return nil
	case ctx.Err() != nil && !t.certainly(heldByAnother):
		return &node.NotDone{Err: t.cut(ctx)}
	case t.counts[done]+t.counts[heldByAnother] >= r.quorum:
		return t.fail(ErrNotAcquired)
	}
	return t.fail(ErrNoQuorum)
}

// takeBack releases a refused attempt on all nodes that granted it or may still do so. It waits, while ctx lasts, for
// those that granted it. The release on other nodes follows their acquire.
func (r *redlock) takeBack(ctx context.Context, p *leaseParams, t *tally[acquireReply]) {
	p.state.become(refused) // first: an acquire that is carried out behind its release is undone from now on
	released := make(chan *node.Call, len(r.nodes))
	waits := 0
	for i := range r.nodes {
		a := &t.answers[i]
		if !a.there {
			t.calls[i].Cancel(errNotWaitedFor)
			if errors.As(t.calls[i].Reply().Err, new(*node.NotDone)) {
				continue // it was never sent
			}
		}
		if a.refused() {
			continue
		}
		c := releaseOn(&p.target)
		if a.succeeded() {
			c.Report = released
			waits++
		}
		r.nodes[i].Post(detached(ctx), c)
	}
	for range waits {
		select {
		case <-released:
		case <-ctx.Done():
			return
		}
	}
}

// releaseOn returns the call that releases a lock on one node, ordered behind earlier calls for its key.
func releaseOn(t *target) *node.Call {
	c := quorumReleaseCall(&releaseParams{target: t})
	c.Key, c.Ordered, c.Timeout = t.key, true, t.timeout
	return c
}

// late returns the callback for the late reply to an acquire on node i.
func (r *redlock) late(ctx context.Context, i int, p *leaseParams) func(node.Reply) {
	return func(reply node.Reply) {
		got, err := readAcquire(reply)
		p.late(r.nodes[i], reply, got, err, func() {
			if r.quorum == 1 { // on more nodes, a release that finds nothing on a quorum has another reason
				p.state.undone.Store(true)
			}
			r.nodes[i].Post(detached(ctx), releaseOn(&p.target))
		})
	}
}

// extend makes the lock last on a quorum of the nodes that still have it. If p says so, a node that has lost the lock
// restores it, but does not count. The vote of such a node is released again if the extension finds the lock lost, or if
// Unlock was called meanwhile, since its release may have reached the node before the extension.
func (r *redlock) extend(ctx context.Context, p *leaseParams) error {
	var lost atomic.Bool
	unwanted := func() bool { return lost.Load() || p.state.unwanted(acquireReply{alreadyHeld: true}, nil, true) }
	release := func(i int) { r.nodes[i].Post(detached(ctx), releaseOn(&p.target)) }
	t, err := r.lengthen(ctx, p, readRenewal, func(i int, c *node.Call) {
		if p.restoreMS == 0 {
			return
		}
		c.Append(&p.fence, &p.restoreMS)
		c.Late = func(reply node.Reply) {
			if node.MayStillRun(reply.Err) {
				p.state.reap(r.nodes[i], func() { release(i) })
			}
			if _, err := readRenewal(reply); errors.Is(err, errRestored) && unwanted() {
				release(i)
			}
		}
	})
	if t == nil {
		return err
	}
	lost.Store(errors.Is(err, ErrLost))
	for i, c := range t.calls {
		if !t.answers[i].there {
			c.Unwatch()
		}
	}
	for len(t.reports) > 0 { // replies that came before Unwatch
		t.take(<-t.reports)
	}
	for i := range t.answers {
		if errors.Is(t.answers[i].err, errRestored) && unwanted() {
			release(i)
		}
	}
	return err
}

// adopt extends the lock, and has a quorum agree on a new fence.
func (r *redlock) adopt(ctx context.Context, p *leaseParams) (uint64, error) {
	t, err := r.lengthen(ctx, p, readExtend, func(_ int, c *node.Call) { c.Append("mint") })
	if err != nil {
		return 0, err
	}
	return r.agree(ctx, &p.target, p.ttl, votes(t, func(vote uint64) uint64 { return vote }))
}

// lengthen makes the lock last on a quorum of the nodes that still have it. finish completes the call for a node.
func (r *redlock) lengthen(
	ctx context.Context, p *leaseParams, read func(node.Reply) (uint64, error), finish func(i int, c *node.Call),
) (*tally[uint64], error) {
	if err := ready(ctx); err != nil {
		return nil, err
	}
	t := ask(ctx, r, "extend", &p.target, func(i int) *node.Call {
		c := node.Eval(quorumScripts.extend, 2, &p.key, &p.fences, &p.token, &p.ttlMS)
		finish(i, c)
		return c
	}, read)
	return t, t.collectHeld(ctx)
}

func (r *redlock) release(ctx context.Context, p *releaseParams) (got releaseReply, err error) {
	t := ask(detached(ctx), r, "release", p.target, func(int) *node.Call { return quorumReleaseCall(p) }, readRelease)
	if err = t.collectHeld(ctx); err == nil {
		got.wanted = slices.ContainsFunc(t.answers, func(a answer[int64]) bool { return a.succeeded() && a.value == 2 })
	}
	return got, err
}

func (r *redlock) inspect(ctx context.Context, lock *target) (Status, error) {
	if err := ready(ctx); err != nil {
		return Status{}, err
	}
	t := ask(ctx, r, "inspect", lock, func(int) *node.Call { return inspectCall(lock) }, readInspect)
	var st Status
	t.collect(ctx, func() bool {
		var certain bool
		st, certain = agreedStatus(t)
		return certain
	})
	switch {
	case ctx.Err() != nil:
		return Status{}, t.cut(ctx)
	case t.counts[done] < r.quorum:
		return Status{}, t.fail(ErrNoQuorum)
	}
	return st, nil
}
