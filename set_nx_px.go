package redlatch

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/node"
)

// claimTime is how long a waiter that was handed a lock has to claim its full TTL, as release.lua
// has it.
const claimTime = time.Second

// NewSetNXPX returns a Locker that keeps each lock as one key of one Redis:
//
//	acquire  SET key token NX PX ttl, in a script that mints a fence beside it
//	release  DEL key, if it still holds the token
//
// This is the pattern that the documentation of SET describes. It excludes as long as that Redis
// neither forgets nor fails over; [Lock.Fence] tells a resource which of two grants is the newer.
//
// client may be of any kind. Its retries and timeouts need no care: every command is bounded by
// [WithOpTimeout]. Commands of many callers share a connection of a *[redis.Client] as pipelines, so such a
// client is the fastest. opts are the Locker's defaults.
//
// The error is ErrInvalidOption for a nil client or an option that cannot work.
func NewSetNXPX(client redis.UniversalClient, opts ...Option) (Locker, error) {
	if err := checkClient(client); err != nil {
		return nil, wrap("new setnxpx", "", err)
	}
	s := &setNXPX{node: node.New(client), confirming: node.NewSlow(client), kind: kindOf(client)}
	if s.kind != ring { // its channels and its keys are on different nodes
		s.channel = newSubscription(client)
	}
	return newEngine(s, opts)
}

// setNXPX keeps locks on one node.
type setNXPX struct {
	node       *node.Node
	confirming *node.Node // for commands that wait for replicas
	kind       kind
	channel    *subscription // nil: waiters poll
}

func (s *setNXPX) name() string { return "setnxpx" }

func (s *setNXPX) subscription() *subscription { return s.channel }

func (s *setNXPX) check(cfg *config) error {
	if cfg.serverTime {
		return refuseServerTime(s)
	}
	return s.checkReplicas(cfg)
}

func (s *setNXPX) place(key string) (place, error) { return fencedPlace(key, s.kind == cluster) }

func (s *setNXPX) acquire(ctx context.Context, p *acquireParams) (acquireReply, error) {
	c := acquireCall(p, 1, false)
	c.Late = func(r node.Reply) { s.late(ctx, p, r) }
	r, err := s.confirmed(ctx, c, p.place, p.replicas, p.replicaTimeout)
	got, readErr := readAcquire(r)
	if readErr != nil {
		err = readErr
	}
	return got, err
}

// late does with an acquire that landed late what its state says: the lock is released, or handed on. With a
// token that the caller chose, only the place in the queue is given up: the lock may be one of before.
func (s *setNXPX) late(ctx context.Context, p *acquireParams, r node.Reply) {
	if p.callerToken && p.entry == "" {
		return
	}
	got, err := readAcquire(r)
	if p.entry != "" && errors.Is(err, ErrNotAcquired) {
		err = errQueued
	}
	p.state.late(s.node, r, got, err, func() {
		undo := p.target
		if p.callerToken {
			undo.token = ""
		} else {
			p.state.undone.Store(true)
		}
		s.node.Post(detached(ctx), s.passOnCall(&undo, p.entry))
	})
}

// errQueued says that an acquire was refused and has left a place in the queue.
var errQueued = errors.New("queued")

func (s *setNXPX) extend(ctx context.Context, p *extendParams) error {
	r, err := s.confirmed(ctx, extendCall(p), p.place, p.replicas, p.replicaTimeout)
	if _, readErr := readExtend(r); readErr != nil {
		return readErr
	}
	return err
}

func (s *setNXPX) release(ctx context.Context, t *target, entry string) error {
	answer, err := readRelease(s.node.Do(ctx, s.passOnCall(t, entry)))
	if answer < 0 {
		s.channel.degrade(&s.channel.publishRefused, errNoPublish)
	}
	return err
}

// passOnCall releases the lock to the next waiter, or deletes it.
func (s *setNXPX) passOnCall(t *target, entry string) *node.Call {
	if s.channel == nil {
		return releaseCall(t)
	}
	c := node.Eval(releaseScript, 3, &t.key, &t.fences, &t.queue, &t.token)
	switch {
	case s.kind == cluster:
		c.Append(entry, "cluster")
	case entry != "":
		c.Append(entry)
	}
	return t.persist(c)
}

var errNoPublish = errors.New("a waiter could not be told of its turn: PUBLISH is forbidden")

func (s *setNXPX) inspect(ctx context.Context, t *target) (Status, error) {
	return readInspect(s.node.Do(ctx, inspectCall(t)))
}
