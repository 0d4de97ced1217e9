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
//  1. Note the time.
//  2. Ask all nodes for the lock, all at once, with one token, each within a short time.
//  3. The lock is granted if a quorum, N/2+1 of the configured nodes, granted it and its lease,
//     counted from step 1, has not ended meanwhile. (The engine does 1 and judges the lease.)
//  4. It lasts for the TTL less what passed since step 1, less the drift.
//  5. If it was not granted, release it on all nodes, also on those that have not answered.
//
// What the page leaves open, and what is done here:
//   - A reply may come late. On each node the commands of this process for one key are sent one after
//     the other, each when the one before it has landed or has taken too long. So a release follows the
//     acquire it is for. What lands later still is released when its reply comes. A late grant of a
//     granted lock makes it sturdier and stays until Unlock.
//   - A node may be slow: the outcome stands as soon as a quorum granted, or no quorum can any
//     more, and nobody waits for the rest. Nor for nodes that were silent when they were last asked,
//     where others have votes: two attempts that wait for them keep each other out meanwhile.
//   - A lock needs a fence: step 3 ends with a quorum agreeing on one (see agree.go).

// NewRedlock returns a Locker that keeps each lock on a quorum, N/2+1, of N independent nodes, by
// the algorithm of "Distributed Locks with Redis":
//
//	acquire  SET key token NX PX ttl on all nodes at once; a quorum of grants is a lock
//	release  DEL key on all nodes, where it still holds the token
//
// It grants while a quorum of the nodes answers, and excludes while no node forgets, fails over or has
// its clock stepped forward: one that restarts without its data must stay away for the longest TTL. One
// slow, hung or dead node of five costs no time. A fence is issued by a quorum too, and grows with every
// grant.
//
// The nodes must be independent, so neither replicas of each other nor one server twice. Each
// client may be of any kind, but one that fails over (Sentinel, Cluster) or moves keys (Ring) is a node
// that forgets. opts are the Locker's defaults; WithOpTimeout bounds a command on
// one node.
//
// The error is ErrInvalidOption for no client, a nil client, one client twice, or an option that
// cannot work. Two clients of one server are found when they are first used; from then on every
// call but Unlock is refused with ErrInvalidOption.
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
			if same(client, other) {
				return nil, wrap("new redlock", "", invalid("nodes %d and %d have one client", j, i))
			}
		}
		r.nodes = append(r.nodes, node.New(client))
		r.names = append(r.names, nodeName(client, i))
		r.inCluster = r.inCluster || kindOf(client) == cluster
	}
	r.servers.ids = make([]atomic.Pointer[string], len(clients))
	return newEngine(r, opts)
}

// redlock keeps locks on a quorum of nodes.
type redlock struct {
	nodes     []*node.Node
	names     []string                     // of the nodes
	told      func(node string, err error) // of what failed on a node
	quorum    int
	inCluster bool // on some node a key has its place in one of several servers
	servers   identities
}

func (r *redlock) name() string { return "redlock" }

func (r *redlock) check(cfg *config) error {
	if cfg.serverTime {
		return refuseServerTime(r)
	}
	return refuseReplicas(r, cfg)
}

func (r *redlock) place(prefix, key string) (place, error) {
	p := place{key: prefix + key}
	p.fences, p.wanted = companion("fence", p.key), companion("wanted", p.key)
	if r.inCluster {
		return p, checkSlot(p.key)
	}
	return p, nil
}

// onTrouble has told hear of each failure of a node.
func (r *redlock) onTrouble(told func(node string, err error)) {
	r.told = told
	for i, n := range r.nodes {
		n.Trouble = func(err error) { told(r.names[i], err) }
	}
}

// ready returns why no question can be put to the nodes.
func (r *redlock) ready(ctx context.Context) error {
	if err := r.servers.check(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return &node.NotDone{Err: node.CtxError(ctx)}
	}
	return nil
}

func (r *redlock) acquire(ctx context.Context, p *acquireParams) (acquireReply, error) {
	if err := r.ready(ctx); err != nil {
		return acquireReply{}, err
	}
	begin := time.Now()
	// 2. All nodes at once.
	t := ask(ctx, r, "acquire", p.key, func(i int) *node.Call {
		c := quorumAcquireCall(p)
		if !p.callerToken { // else it may be the token of the very lock that the caller wants to recover
			c.Late = r.late(ctx, i, &p.target, p.state, readAcquire)
		}
		return r.servers.ask(i, c)
	}, checked(&r.servers, readAcquire))
	t.collect(ctx, func() bool {
		return t.count(yes) >= r.quorum || // 3. A quorum granted,
			t.certainly(heldByAnother) || // or none can, and it is certain why,
			t.refusedBesideSilence(r.nodes) // or none is likely to.
	})
	err := r.refused(ctx, p, t, begin)
	var fence uint64
	if err == nil {
		fence, err = r.agree(ctx, &p.target, p.ttl, votes(t, func(got acquireReply) uint64 { return got.fence }))
	}
	if p.callerToken && alreadyHeld(t) { // A lock of before: its votes may end before the lease.
		if err == nil {
			err = r.extend(ctx, &extendParams{target: p.target, ttl: p.ttl})
		}
		err = lostIsRefused(err)
	}
	if err == nil {
		for i, c := range t.calls {
			if !t.answers[i].there {
				c.Leave()
			}
		}
		return acquireReply{fence: fence}, nil
	}
	// 5. Not granted: release what was, and what may come.
	r.takeBack(ctx, p, t)
	return acquireReply{left: soonest(t), holder: holderIn(t)}, err
}

// votes returns what the nodes that did as they were asked voted for the fence.
func votes[T any](t *tally[T], vote func(T) uint64) (all []uint64) {
	for i := range t.answers {
		if a := &t.answers[i]; a.done() {
			all = append(all, vote(a.value))
		}
	}
	return all
}

// alreadyHeld reports whether the token had the lock before on one of the nodes that granted it.
func alreadyHeld(t *tally[acquireReply]) bool {
	return slices.ContainsFunc(t.answers, func(a answer[acquireReply]) bool { return a.done() && a.value.alreadyHeld })
}

// lostIsRefused makes the error of a lock of before that ended while it was taken again one that a wait goes on
// after: nobody was told that it was held.
func lostIsRefused(err error) error {
	var q *QuorumError
	if errors.As(err, &q) && errors.Is(q.err, ErrLost) {
		q.err = ErrNotAcquired
	}
	return err
}

// refused returns why an acquire that was asked for at begin was not granted, or nil. Where ctx ends in the middle,
// the nodes have met with trouble if they had the time to answer.
func (r *redlock) refused(ctx context.Context, p *acquireParams, t *tally[acquireReply], begin time.Time) error {
	switch {
	case r.servers.check() != nil:
		return r.servers.check()
	case t.count(yes) >= r.quorum:
		return nil
	case ctx.Err() != nil && time.Since(begin) > p.timeout/4:
		return &node.NotDone{Err: &node.CutShort{Ctx: node.CtxError(ctx), Trouble: t.fail(ErrNoQuorum)}}
	case ctx.Err() != nil:
		return &node.NotDone{Err: fmt.Errorf("%w: %w", node.CtxError(ctx), errUnanswered)}
	case t.count(yes)+t.count(heldByAnother) >= r.quorum:
		return t.fail(ErrNotAcquired)
	}
	return t.fail(ErrNoQuorum)
}

// takeBack releases a refused attempt on all nodes that granted it or may yet do so, and waits for those
// that granted it, while ctx lasts. The others follow when their acquire has landed.
//
// A token that the caller chose may hold a lock of before: only the votes that are surely new are
// released then, for they would keep everybody out, unless so many nodes are another's that the token
// cannot have a quorum.
func (r *redlock) takeBack(ctx context.Context, p *acquireParams, t *tally[acquireReply]) {
	all := !p.callerToken || t.count(heldByAnother) > len(r.nodes)-r.quorum
	released := make(chan *node.Call, len(r.nodes))
	waits := 0
	for i := range r.nodes {
		a := &t.answers[i]
		if !a.there {
			t.calls[i].Cancel(errNotWaitedFor) // it is sent no more
			if all && errors.As(t.calls[i].Reply().Err, new(*node.NotDone)) {
				continue // and never was
			}
		}
		granted := a.done()
		if a.there && knownNotDone(a.err) || !all && (!granted || a.value.alreadyHeld) {
			continue
		}
		c := releaseOn(&p.target)
		if granted {
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

// releaseOn releases a lock on one node, after what is under way there for its key.
func releaseOn(t *target) *node.Call {
	c := quorumReleaseCall(t)
	c.Key, c.Ordered = t.key, true
	return c
}

// late returns what becomes of an acquire or a heal that lands late on node i.
func (r *redlock) late(ctx context.Context, i int, t *target, state *lockState, read func(node.Reply) (acquireReply, error)) func(node.Reply) {
	return func(reply node.Reply) {
		got, err := read(reply)
		state.late(r.nodes[i], reply, got, err, func() { r.nodes[i].Post(detached(ctx), releaseOn(t)) })
	}
}

// extend makes the lock last on a quorum of nodes that still have it. Nodes that have lost it are
// healed, and do not count.
func (r *redlock) extend(ctx context.Context, p *extendParams) error {
	t, err := r.lengthen(ctx, &p.target, p.ttl, false)
	if err == nil && p.lease != nil {
		r.heal(ctx, p, t)
	}
	return err
}

// adopt does as extend, without healing, and has a quorum agree on a new fence.
func (r *redlock) adopt(ctx context.Context, p *acquireParams) (uint64, error) {
	t, err := r.lengthen(ctx, &p.target, p.ttl, true)
	if err != nil {
		return 0, err
	}
	return r.agree(ctx, &p.target, p.ttl, votes(t, func(vote uint64) uint64 { return vote }))
}

// lengthen makes the lock last on a quorum of nodes that still have it. To mint has them vote for a fence.
func (r *redlock) lengthen(ctx context.Context, lock *target, ttl time.Duration, mint bool) (*tally[uint64], error) {
	if err := r.ready(ctx); err != nil {
		return nil, err
	}
	t := ask(ctx, r, "extend", lock.key, func(i int) *node.Call {
		return r.servers.ask(i, quorumExtendCall(lock, ttl, mint))
	}, checked(&r.servers, readExtend))
	t.collect(ctx, func() bool { return t.count(yes) >= r.quorum || t.certainly(notHeld) })
	switch {
	case r.servers.check() != nil:
		return t, r.servers.check()
	case t.count(yes) >= r.quorum:
		return t, nil
	case t.count(notHeld) > len(r.nodes)-r.quorum:
		return t, t.fail(ErrLost)
	case ctx.Err() != nil:
		return t, node.CtxError(ctx)
	}
	return t, t.fail(ErrNoQuorum)
}

// release gives the lock back on all nodes.
func (r *redlock) release(ctx context.Context, p *releaseParams) (wanted bool, err error) {
	t := ask(detached(ctx), r, "release", p.key, func(int) *node.Call {
		if p.keep > 0 {
			return keepCall(lockScripts.extend, &p.target, p.keep)
		}
		return quorumReleaseCall(&p.target)
	},
		func(_ int, reply node.Reply) (int64, error) {
			if p.keep > 0 {
				return readKept(reply)
			}
			return readRelease(reply)
		})
	t.collect(ctx, func() bool { return t.count(yes) >= r.quorum || t.certainly(notHeld) })
	switch {
	case t.count(yes) >= r.quorum:
		return slices.ContainsFunc(t.answers, func(a answer[int64]) bool { return a.done() && a.value == 2 }), nil
	case t.count(notHeld) > len(r.nodes)-r.quorum:
		return false, t.fail(ErrLost)
	}
	return false, t.fail(ErrNoQuorum)
}

// inspect reports what a quorum of the nodes says.
func (r *redlock) inspect(ctx context.Context, lock *target) (Status, error) {
	if err := r.ready(ctx); err != nil {
		return Status{}, err
	}
	t := ask(ctx, r, "inspect", lock.key, func(i int) *node.Call {
		return r.servers.ask(i, inspectCall(lockScripts.inspect, lock))
	}, checked(&r.servers, readInspect))
	var st Status
	t.collect(ctx, func() bool {
		var certain bool
		st, certain = r.common(t)
		return certain
	})
	switch {
	case r.servers.check() != nil:
		return Status{}, r.servers.check()
	case ctx.Err() != nil:
		return Status{}, node.CtxError(ctx)
	case t.count(yes) < r.quorum:
		return Status{}, t.fail(ErrNoQuorum)
	}
	return st, nil
}

// common returns what a quorum of the answers has in common: the holder, or that there is none, and how
// long a quorum of the holder's keys lasts. It reports whether that is certain.
func (r *redlock) common(t *tally[Status]) (st Status, certain bool) {
	ttls := make(map[string][]time.Duration) // by holder
	for i := range t.answers {
		if a := &t.answers[i]; a.done() {
			ttls[a.value.Token] = append(ttls[a.value.Token], a.value.TTL)
		}
	}
	for holder, left := range ttls {
		if len(left) >= r.quorum {
			slices.Sort(left)
			st = Status{Held: holder != "", Token: holder, TTL: left[len(left)-r.quorum]}
			certain = true
		}
	}
	return st, certain
}
