package redlatch

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
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
// client may be of any kind, also one made by AsyncAutoPipeline, or by AutoPipeline, where the
// AutoPipelineOptions in its client's Options are the ones that count. Its retries and timeouts need
// no care: every command is bounded by [WithOpTimeout]. One whose ReadTimeout and WriteTimeout are not
// above that, or with ContextTimeoutEnabled, takes less time: Unlock, renewals and calls whose ctx cannot
// end then need no goroutine. opts are the Locker's defaults.
//
// The error is ErrInvalidOption for a nil client or an option that cannot work.
func NewSetNXPX(client redis.UniversalClient, opts ...Option) (Locker, error) {
	if err := checkClient(client); err != nil {
		return nil, wrap("new setnxpx", "", err)
	}
	s := &setNXPX{node: newNode(client, mostJobs), cluster: spread(client)}
	s.pass = s.passOn
	if _, ring := client.(*redis.Ring); !ring { // its channels and its keys are on different nodes
		s.channel = newSubscription(client)
	}
	s.node.near = nearBy(client)
	return newEngine(s, opts)
}

// setNXPX keeps locks on one node.
type setNXPX struct {
	node    *node
	cluster bool          // a key has its place in one of several nodes
	channel *subscription // nil: waiters poll
	pass    operation     // passOn
}

func (s *setNXPX) name() string { return "setnxpx" }

func (s *setNXPX) subscription() *subscription { return s.channel }

func (s *setNXPX) serves() special { return special{replicas: true} }

func (s *setNXPX) check(cfg *config) error { return s.checkReplicas(cfg) }

func (s *setNXPX) place(key string) (place, error) { return fencedPlace(key, s.cluster) }

func (s *setNXPX) acquire(ctx context.Context, c *claim) (grant, error) {
	undo := s.pass
	if c.chosen { // perhaps for a lock of before, which must stay
		undo = s.leave
	}
	if c.replicas > 0 {
		return s.node.start(ctx, confirmed(acquire), c.withTimeToWait(), form{undo: undo}).wait(ctx)
	}
	return s.node.do(ctx, acquire, c, form{undo: undo})
}

func (s *setNXPX) extend(ctx context.Context, c *claim) error {
	if c.replicas > 0 {
		_, err := s.node.start(ctx, confirmed(extend), c.withTimeToWait(), form{}).wait(ctx)
		return err
	}
	_, err := s.node.do(ctx, extend, c, form{})
	return err
}

func (s *setNXPX) release(ctx context.Context, c *claim) error {
	_, err := s.node.do(ctx, s.pass, c, form{last: true})
	return err
}

// passOn releases the lock to the next waiter, or deletes it.
func (s *setNXPX) passOn(j *job, c *claim) (grant, error) {
	if s.channel == nil {
		return release(j, c)
	}
	words := releaseScript.call(j, 3, &c.key, &c.fences, &c.queue, &c.token)
	switch {
	case s.cluster:
		words = append(words, &c.entry, "cluster")
	case c.entry != "":
		words = append(words, &c.entry)
	}
	answer, err := released(j, words)
	if answer < 0 {
		s.channel.degrade(&s.channel.unheard, errNoPublish)
	}
	return grant{}, err
}

// leave gives up a place in the queue, and nothing else.
func (s *setNXPX) leave(j *job, c *claim) (grant, error) {
	if c.entry == "" {
		return grant{}, nil
	}
	place := *c
	place.token = ""
	return s.passOn(j, &place)
}

var errNoPublish = errors.New("a waiter could not be told of its turn: PUBLISH is forbidden")

func (s *setNXPX) inspect(ctx context.Context, c *claim) (Status, error) {
	g, err := s.node.do(ctx, inspect, c, form{})
	if err != nil {
		return Status{}, err
	}
	return *g.status, nil
}
