package redlatch

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
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
//   - A reply may come late. On each node the commands of this process for one key are carried out
//     one after the other, so that a release follows the acquire it is for, and a new attempt
//     follows the release of the last. A late grant of a refused attempt is thereby released; one
//     of a granted lock makes it sturdier and stays until Unlock.
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
		r.nodes = append(r.nodes, newNode(client, mostOfQuorum))
		r.cluster = r.cluster || spread(client)
	}
	r.ids = make([]atomic.Pointer[string], len(clients))
	r.acquireOn, r.extendOn, r.inspectOn = r.identified(acquire), r.identified(extend), r.identified(inspect)
	return newEngine(r, opts)
}

// redlock keeps locks on a quorum of nodes.
type redlock struct {
	nodes   []*node
	quorum  int
	cluster bool                     // on some node a key has its place in one of several servers
	ids     []atomic.Pointer[string] // by node, the run_id of its server; empty where it tells none
	twins   atomic.Pointer[error]    // that two clients are of one server, once it is known

	// The operations on a node that knows which server it is.
	acquireOn, extendOn, inspectOn operation
}

func (r *redlock) name() string { return "redlock" }

func (r *redlock) serves() special { return special{} }

func (r *redlock) check(*config) error { return nil }

func (r *redlock) place(key string) (place, error) { return fencedPlace(key, r.cluster) }

func (r *redlock) acquire(ctx context.Context, c *claim) (grant, error) {
	if ctx.Err() != nil {
		return grant{}, &undone{ctxError(ctx)}
	}
	ask := *c
	ask.grain, ask.keep = quorumGrain, c.chosen
	// 2. All nodes at once.
	t := r.ask(ctx, "acquire", &ask, r.acquireOn, form{undo: c.undo(), first: !c.chosen})
	t.collect(ctx, func() bool {
		return t.count(yes) >= r.quorum || // 3. A quorum granted,
			t.certainly(held) || // or none can, and it is certain why,
			t.refusedBesideSilence(r.nodes) // or none is likely to.
	})
	err := r.refused(ctx, t)
	var fence uint64
	if err == nil && c.fenced {
		fence, err = r.agree(ctx, &ask, t)
	}
	if err == nil && c.chosen && t.found() { // A lock of before: its votes may end before the lease.
		err = r.extend(ctx, c)
	}
	if err == nil {
		return grant{fence: fence}, nil
	}
	// 5. Not granted: release what was, and what may come.
	r.takeBack(ctx, c, t)
	return grant{left: t.soonest()}, err
}

// found reports whether the token had the lock already on one of the nodes that granted it.
func (t *tally) found() bool {
	return slices.ContainsFunc(t.answers, func(j *job) bool { return j != nil && j.err == nil && j.grant.found })
}

// undo returns what takes back an acquire of c: nothing where the caller chose the token, which
// may be that of the very lock it wants to recover.
func (c *claim) undo() operation {
	if c.chosen {
		return nil
	}
	return release
}

// refused returns why an acquire was not granted, or nil.
func (r *redlock) refused(ctx context.Context, t *tally) error {
	switch {
	case r.twins.Load() != nil:
		return *r.twins.Load()
	case t.count(yes) >= r.quorum:
		return nil
	case ctx.Err() != nil:
		return &undone{ctxError(ctx)}
	case t.count(yes)+t.count(held) >= r.quorum:
		return t.fail(ErrNotAcquired)
	}
	return t.fail(ErrNoQuorum)
}

// takeBack releases a refused claim on all nodes that granted it or may yet do so, and waits for
// those that granted it, while ctx lasts. The others follow when their acquire has landed.
//
// A token that the caller chose may hold a lock of before: only the votes that are surely new are
// released then, for they would keep everybody out, unless so many nodes are another's that the token
// cannot have a quorum.
func (r *redlock) takeBack(ctx context.Context, c *claim, t *tally) {
	all := !c.chosen || t.count(held) > len(r.nodes)-r.quorum
	var waited []*job
	for i, n := range r.nodes {
		j := t.answers[i]
		granted := j != nil && j.err == nil
		if j != nil && surelyNot(j.err) || !all && (!granted || j.grant.found) {
			continue
		}
		t.jobs[i].settle(grant{}, errNoAnswer) // it is sent no more
		taken := n.start(detached(ctx), release, c, form{last: true, ordered: true})
		if granted {
			waited = append(waited, taken)
		}
	}
	for _, j := range waited {
		select {
		case <-j.ended:
		case <-ctx.Done():
			return
		}
	}
}

// extend makes the lock last on a quorum of nodes that still have it. Nodes that have lost it are
// healed, and do not count.
func (r *redlock) extend(ctx context.Context, c *claim) error {
	if twins := r.twins.Load(); twins != nil {
		return *twins
	}
	if ctx.Err() != nil {
		return &undone{ctxError(ctx)}
	}
	t := r.ask(ctx, "extend", c, r.extendOn, form{})
	t.collect(ctx, func() bool { return t.count(yes) >= r.quorum || t.certainly(gone) })
	switch {
	case r.twins.Load() != nil:
		return *r.twins.Load()
	case t.count(yes) >= r.quorum:
		if c.trusted != nil {
			r.heal(ctx, c, t)
		}
		return nil
	case t.count(gone) > len(r.nodes)-r.quorum:
		return t.fail(ErrLost)
	case ctx.Err() != nil:
		return ctxError(ctx)
	}
	return t.fail(ErrNoQuorum)
}

// release gives the lock back on all nodes.
func (r *redlock) release(ctx context.Context, c *claim) error {
	t := r.ask(ctx, "release", c, release, form{last: true})
	t.collect(ctx, func() bool { return t.count(yes) >= r.quorum || t.certainly(gone) })
	switch {
	case t.count(yes) >= r.quorum:
		return nil
	case t.count(gone) > len(r.nodes)-r.quorum:
		return t.fail(ErrLost)
	}
	return t.fail(ErrNoQuorum)
}

// inspect reports what a quorum of the nodes says. With a token, it settles the fence of that
// token's lock.
func (r *redlock) inspect(ctx context.Context, c *claim) (Status, error) {
	if twins := r.twins.Load(); twins != nil {
		return Status{}, *twins
	}
	if ctx.Err() != nil {
		return Status{}, &undone{ctxError(ctx)}
	}
	t := r.ask(ctx, "inspect", c, r.inspectOn, form{})
	var st Status
	t.collect(ctx, func() bool {
		var certain bool
		st, certain = r.common(t, c.token)
		return certain
	})
	switch {
	case r.twins.Load() != nil:
		return Status{}, *r.twins.Load()
	case ctx.Err() != nil:
		return Status{}, ctxError(ctx)
	case t.count(yes) < r.quorum:
		return Status{}, t.fail(ErrNoQuorum)
	case c.token == "" || st.Token != c.token || st.Fence != 0:
		return st, nil
	}
	// No quorum of the token's nodes has one counter any more: let them agree anew.
	for i, j := range t.answers {
		switch {
		case j == nil || j.err != nil:
		case j.grant.status.Token == c.token:
			j.grant.fence = j.grant.status.Fence
		default:
			t.answers[i] = nil
		}
	}
	var err error
	st.Fence, err = r.agree(ctx, c, t)
	return st, err
}

// common returns what a quorum of the answers has in common: the holder, or that there is none,
// how long a quorum of the holder's keys lasts, and the counter; with a token, that of the nodes
// that hold it. It reports whether both the holder and the counter are certain, or that the answers
// to come can make no counter common.
func (r *redlock) common(t *tally, token string) (st Status, certain bool) {
	ttls := make(map[string][]time.Duration) // by holder
	counters := make(map[uint64]int)
	for _, j := range t.answers {
		if j != nil && j.err == nil {
			s := j.grant.status
			ttls[s.Token] = append(ttls[s.Token], s.TTL)
			if token == "" || s.Token == token {
				counters[s.Fence]++
			}
		}
	}
	held, most := false, 0
	for holder, left := range ttls {
		if len(left) >= r.quorum {
			held = true
			slices.Sort(left)
			st.Held, st.Token, st.TTL = holder != "", holder, left[len(left)-r.quorum]
		}
	}
	for counter, n := range counters {
		if most = max(most, n); n >= r.quorum {
			st.Fence = counter
		}
	}
	return st, held && (most >= r.quorum || most+t.pending() < r.quorum)
}
