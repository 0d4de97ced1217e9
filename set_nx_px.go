package redlatch

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/handoff"
	"github.com/redlatch/redlatch/internal/node"
)

var lockScripts = scripts{
	acquire: script("acquire.lua"),
	extend:  script("extend.lua"),
	release: script("release.lua"),
	inspect: script("inspect.lua"),
}

// NewSetNXPX returns a Locker that keeps each lock as one key of one Redis:
//
//	acquire  SET key token NX PX ttl, in a script that issues a fence
//	release  DEL key, if it still holds the token
//
// If others wait, the release sets the key to the token of the next owner instead, so the lock is never free in between.
//
// This is the pattern that the documentation of SET describes. It excludes other owners while that Redis loses no data
// and does not fail over, and its clock does not jump forward. [Lock.Fence] lets a resource reject the older of two
// owners.
//
// All fences come from one key, the prefix of [WithKeyPrefix] followed by redlatch:fence. That key cannot be locked.
// Only with a *[redis.ClusterClient] are there several such keys: one for each hash tag, and one for each key without a
// tag. So use that client in all processes or in none.
//
// Since all locks share the key of the fences, a *[redis.Client] must reach the same server for all keys. A proxy that
// shards keys breaks that. With such a proxy, use a prefix with a hash tag, such as {locks}:, which keeps all locks on
// one server. Or connect to the servers without the proxy, by a *[redis.ClusterClient].
//
// client may be of any kind. Its retries and timeouts need no tuning: [WithOpTimeout] bounds every command. A
// *[redis.Client] is the fastest, since commands of concurrent callers share its connections as pipelines. opts are
// the defaults of the Locker.
//
// The error is ErrInvalidOption for a nil client or an option that cannot work.
func NewSetNXPX(client redis.UniversalClient, opts ...Option) (Locker, error) {
	if err := checkClient(client); err != nil {
		return nil, wrap("new setnxpx", "", err)
	}
	return newEngine(newSetNXPX(client), opts)
}

func newSetNXPX(client redis.UniversalClient) *setNXPX {
	s := &setNXPX{node: node.New(client), confirming: node.NewSlow(client), kind: kindOf(client), scripts: lockScripts}
	s.channel = handoff.NewSubscription(client, s.kind == ring) // a Ring keeps channels and keys on different nodes
	s.settings = []any{""}
	if s.kind == cluster {
		s.settings[0] = "cluster"
	}
	return s
}

type setNXPX struct {
	node       *node.Node
	confirming *node.Node // for commands that wait for replicas
	kind       kind
	channel    *handoff.Subscription
	scripts    scripts
	limit      []any // of a semaphore: a further argument of the script that extends
	settings   []any // further arguments of the scripts that hand locks on
}

func (s *setNXPX) name() string { return "setnxpx" }

func (s *setNXPX) habits() habits { return habits{} }

func (s *setNXPX) subscription() *handoff.Subscription { return s.channel }

func (s *setNXPX) check(cfg *config) error {
	if cfg.serverTime {
		return refuseServerTime(s)
	}
	return s.checkReplicas(cfg)
}

func (s *setNXPX) place(prefix, key string) (place, error) {
	p := place{key: prefix + key, fences: prefix + registerName}
	p.queue = companion("queue", p.key)
	if s.kind == cluster {
		p.fences = "{" + slotTag(p.key) + "}:" + registerName
		if err := checkSlot(p.key); err != nil {
			return p, err
		}
	}
	if p.key == p.fences {
		return p, invalid("key %q: the fences of all locks are kept there", p.key)
	}
	return p, nil
}

func (s *setNXPX) acquire(ctx context.Context, p *acquireParams) (acquireReply, error) {
	return s.take(ctx, p, acquireCall(s.scripts.acquire, p))
}

func (s *setNXPX) take(ctx context.Context, p *acquireParams, c *node.Call) (acquireReply, error) {
	c.Late = func(r node.Reply) { s.late(ctx, p, r) }
	r, err := s.confirmed(ctx, c, p.place, p.replicas, p.replicaTimeout)
	got, readErr := readAcquire(r)
	if readErr != nil {
		err = readErr
	}
	return got, err
}

// late handles an acquire that was carried out late: the state of the attempt decides whether the lock is released or
// handed on, or whether only its entry leaves the queue. A token that the caller chose may have held the key before, so
// its lock stays.
func (s *setNXPX) late(ctx context.Context, p *acquireParams, r node.Reply) {
	if p.callerToken {
		return
	}
	got, err := readAcquire(r)
	if p.entry != "" && errors.Is(err, ErrNotAcquired) {
		err = errQueued
	}
	p.state.late(s.node, r, got, err, func() {
		release := &releaseParams{target: p.target, entry: p.entry}
		if errors.Is(err, errQueued) && (p.state.is(lost) || p.state.is(kept)) {
			release.token = "" // it may have been adopted, or keep the key: only the entry goes
		} else {
			p.state.undone.Store(true)
		}
		s.node.Post(detached(ctx), passOnCall(s.scripts.release, release, s.settings...))
	})
}

// errQueued is the outcome of an acquire that was refused but has left an entry in the queue.
var errQueued = errors.New("queued")

func (s *setNXPX) extend(ctx context.Context, p *extendParams) error {
	_, err := readExtend(s.node.Do(ctx, extendCall(s.scripts.extend, &p.target, p.ttl, s.limit...)))
	return err
}

func (s *setNXPX) adopt(ctx context.Context, p *acquireParams) (uint64, error) {
	r, err := s.confirmed(ctx, adoptCall(s.scripts.extend, p, s.limit...), p.place, p.replicas, p.replicaTimeout)
	fence, readErr := readExtend(r)
	if readErr != nil {
		err = readErr
	}
	return fence, err
}

func (s *setNXPX) release(ctx context.Context, p *releaseParams) (releaseReply, error) {
	got, published, err := readPassOn(s.node.Do(ctx, passOnCall(s.scripts.release, p, s.settings...)))
	if !published {
		got.wanted = true
		s.channel.RefusePublish(errNoPublish)
	}
	return got, err
}

var errNoPublish = errors.New("a lock could not be handed to a waiter: PUBLISH is forbidden")

func (s *setNXPX) inspect(ctx context.Context, t *target) (Status, error) {
	return readInspect(s.node.Do(ctx, inspectCall(s.scripts.inspect, t)))
}
