package redlatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

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
//  - late replies. On each node the release of a token follows its acquire, see ballot, and an acquire that comes later
//    than its timeout does nothing. A late vote for a granted lock is kept until Unlock.
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
	r := &redlock{quorum: len(clients)/2 + 1, leaving: leaving{tokens: make(map[string]*ballot)}}
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

	leaving leaving
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

func (r *redlock) trouble(op string, t *target, since time.Duration) error {
	e := &QuorumError{Op: op, Key: t.key, Need: r.quorum, Nodes: make([]error, len(r.nodes)), names: r.names, err: ErrNoQuorum}
	for i, n := range r.nodes {
		e.Nodes[i] = silence(n, since)
	}
	return e
}

func (r *redlock) acquire(ctx context.Context, p *leaseParams, done func(acquireReply, error)) {
	p.ballot = newBallot(len(r.nodes))
	// 2. All nodes at once.
	t := newTally(r, "acquire", &p.target, readAcquire)
	t.decided = func() bool {
		return t.counts[successful] >= r.quorum || // 3. A quorum granted,
			t.certainly(heldByAnother) || // or it is certain that none can and why,
			t.refusedBesideSilence() // or only silent nodes are left.
	}
	t.then = func() {
		if err := t.refused(); err != nil {
			r.takeBack(ctx, p, t, err, done)
			return
		}
		votes := votes(t, func(got acquireReply) uint64 { return got.fence })
		r.agree(ctx, &p.target, p.ttl, votes, func(fence uint64, err error) {
			if err != nil {
				r.takeBack(ctx, p, t, err, done)
				return
			}
			done(acquireReply{fence: fence, resent: t.resent()}, nil)
		})
	}
	end := time.Now().Add(p.timeout)
	t.overtook = func(i int, got acquireReply, err error, again func(within time.Duration)) bool {
		b := r.leaving.of(got.Holder)
		within := time.Until(end)
		if !errors.Is(err, ErrNotAcquired) || b == nil || within <= 0 {
			return false
		}
		b.after(i, func() { again(within) })
		return true
	}
	t.ask(ctx, p.ballot, func() *node.Call {
		c := node.Eval(quorumScripts.acquire, 3, &p.key, &p.fences, &p.wanted, &p.token, &p.ttlMS)
		c.AppendLatest()
		return c
	})
}

// takeBack is step 5 for an attempt that failed with err. It releases the token on all nodes that granted it or may still do
// so. It waits for those that granted it. The release on another node follows its acquire.
func (r *redlock) takeBack(ctx context.Context, p *leaseParams, t *tally[acquireReply], err error, done func(acquireReply, error)) {
	var left atomic.Int32
	left.Store(1)
	released := func(node.Reply) {
		if left.Add(-1) == 0 {
			got := acquireReply{resent: t.resent()}
			owned := false
			got.Holder, owned = holderIn(t)
			got.Left, got.split = soonest(t), !owned && errors.Is(err, ErrNotAcquired)
			done(got, err)
		}
	}
	for i := range r.nodes {
		a := &t.answers[i]
		if a.there && !a.votes {
			continue
		}
		waits := a.succeeded()
		if waits {
			left.Add(1)
		}
		p.ballot.release(i, func(votes bool) {
			switch {
			case waits:
				r.releaseOn(ctx, i, &p.target, released)
			case votes:
				r.releaseOn(ctx, i, &p.target, nil)
			}
		})
	}
	released(node.Reply{})
}

// releaseOn releases the lock t on one node.
func (r *redlock) releaseOn(ctx context.Context, i int, t *target, done func(node.Reply)) {
	c := quorumReleaseCall(&releaseParams{target: t})
	c.Timeout, c.Done = t.timeout, done
	r.nodes[i].Post(ctx, c)
}

// extend makes the lock last on a quorum of the nodes that still have it. If p says so, a node that has lost the lock
// restores it, but does not count. If the extension finds the lock lost, what it has restored is released.
func (r *redlock) extend(ctx context.Context, p *leaseParams, done func(struct{}, error)) {
	t := r.lengthening(p, readRenewal)
	t.then = func() {
		err := t.held()
		if errors.Is(err, ErrLost) && p.restoreMS > 0 {
			for i := range r.nodes {
				if a := &t.answers[i]; !a.there || errors.Is(a.err, errRestored) {
					p.ballot.release(i, func(votes bool) {
						if votes {
							r.releaseOn(ctx, i, &p.target, nil)
						}
					})
				}
			}
		}
		done(struct{}{}, err)
	}
	var order *ballot
	if p.restoreMS > 0 {
		order = p.ballot
	}
	t.ask(ctx, order, func() *node.Call {
		c := node.Eval(quorumScripts.extend, 2, &p.key, &p.fences, &p.token, &p.ttlMS)
		if p.restoreMS > 0 {
			c.Append(&p.fence, &p.restoreMS)
			c.AppendLatest()
		}
		return c
	})
}

// adopt extends the lock, and has a quorum agree on a new fence.
func (r *redlock) adopt(ctx context.Context, p *leaseParams, done func(uint64, error)) {
	p.ballot = newBallot(len(r.nodes))
	t := r.lengthening(p, readExtend)
	t.then = func() {
		if err := t.held(); err != nil {
			done(0, err)
			return
		}
		r.agree(ctx, &p.target, p.ttl, votes(t, func(vote uint64) uint64 { return vote }), done)
	}
	t.ask(ctx, nil, func() *node.Call {
		return node.Eval(quorumScripts.extend, 2, &p.key, &p.fences, &p.token, &p.ttlMS, "mint")
	})
}

// lengthening returns the tally of an operation that makes the lock last on a quorum of the nodes that still have it.
func (r *redlock) lengthening(p *leaseParams, read func(node.Reply) (uint64, error)) *tally[uint64] {
	t := newTally(r, "extend", &p.target, read)
	t.decided = t.heldOrNot
	return t
}

func (r *redlock) release(ctx context.Context, p *releaseParams, done func(releaseReply, error)) {
	t := newTally(r, "release", p.target, readRelease)
	t.decided = t.heldOrNot
	t.then = func() {
		var got releaseReply
		err := t.held()
		if err == nil {
			got.wanted = slices.ContainsFunc(t.answers, func(a answer[int64]) bool { return a.succeeded() && a.value == 2 })
		}
		done(got, err)
	}
	r.leaving.add(p.token, p.ballot)
	for i := range r.nodes {
		p.ballot.release(i, func(bool) { t.askOne(ctx, i, quorumReleaseCall(p), nil) })
	}
}

func (r *redlock) inspect(ctx context.Context, lock *target, done func(Status, error)) {
	t := newTally(r, "inspect", lock, readInspect)
	var st Status
	t.decided = func() (certain bool) {
		st, certain = agreedStatus(t)
		return certain
	}
	t.then = func() {
		if t.counts[successful] < r.quorum {
			done(Status{}, t.fail(ErrNoQuorum))
			return
		}
		done(st, nil)
	}
	t.ask(ctx, nil, func() *node.Call { return inspectCall(lock) })
}
