package redlatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/clock"
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
// client may be of any kind. A *[redis.ClusterClient] or *[redis.Ring] is recognized by its methods, also in a struct
// that embeds it. A [redis.AutoPipeliner], or a struct that embeds [redis.UniversalClient], hides them, and works for one
// server only. Retries and timeouts of the client need no tuning: [WithOpTimeout] bounds every command. A *[redis.Client] is the fastest, since commands of
// concurrent callers share its connections as pipelines. opts are the defaults of the Locker.
//
// The error is ErrInvalidOption for a nil client or an option that cannot work.
func NewSetNXPX(client redis.UniversalClient, opts ...Option) (Locker, error) {
	if err := checkClient(client); err != nil {
		return nil, wrap("new setnxpx", "", err)
	}
	return newEngine(newSetNXPX(client), opts)
}

func newSetNXPX(client redis.UniversalClient) *setNXPX {
	s := &setNXPX{single: newSingle(client), scripts: lockScripts}
	s.readAcquire = readTicket
	s.channel = handoff.NewSubscription(client, s.kind == ring) // a Ring keeps channels and keys on different nodes
	s.channel.Spread = s.kind == cluster
	return s
}

type setNXPX struct {
	single
	channel *handoff.Subscription
	scripts scripts
	limits  []any // of a semaphore: an argument of acquire and release
}

func (s *setNXPX) name() string { return "setnxpx" }

func (s *setNXPX) habits() habits { return habits{channel: s.channel, passes: true, keeps: true} }

func (s *setNXPX) check(cfg *config) error { return s.checkReplicas(cfg) }

func (s *setNXPX) place(prefix, key string) (place, error) {
	p := place{key: prefix + key, fences: prefix + registerName}
	p.queue = companion("queue", p.key)
	if s.kind == cluster {
		p.fences = "{" + slotTag(p.key) + "}:" + registerName
	}
	if p.key == p.fences {
		return p, invalid("key %q: the fences of all locks are kept there", p.key)
	}
	return p, s.kind.check(p.key)
}

func (s *setNXPX) acquire(ctx context.Context, p *leaseParams, done func(acquireReply, error)) {
	c := node.Eval(s.scripts.acquire, 3, &p.key, &p.fences, &p.queue, &p.token, &p.ttlMS)
	c.Append(s.limits...)
	c.AppendLatest()
	if p.entry != "" {
		c.Append(&p.entry, p.waited.Microseconds())
	}
	if p.queued {
		c.Append("again")
	}
	s.take(ctx, p, c, done)
}

// readTicket reads the replies of acquire.lua and semaphore_acquire.lua.
func readTicket(r node.Reply) (acquireReply, error) {
	got, err := readAcquire(r)
	got.fence *= fencesOfTick
	return got, err
}

func (s *setNXPX) adopt(ctx context.Context, p *leaseParams, done func(uint64, error)) {
	c := p.withReplicas(node.Eval(s.scripts.extend, 2, &p.key, &p.fences, &p.token, &p.ttlMS))
	c.Done = func(r node.Reply) {
		tick, err := readExtend(r)
		done(tick*fencesOfTick, p.confirmed(r, err))
	}
	s.send(ctx, &p.target, c)
}

func (s *setNXPX) extend(ctx context.Context, p *leaseParams, done func(struct{}, error)) {
	c := node.Eval(s.scripts.extend, 1, &p.key, &p.token, &p.ttlMS)
	c.Done = func(r node.Reply) {
		_, err := readExtend(r)
		done(struct{}{}, err)
	}
	s.send(ctx, &p.target, c)
}

func (s *setNXPX) release(ctx context.Context, p *releaseParams, done func(releaseReply, error)) {
	c := s.releaseCall(p)
	c.Done = func(r node.Reply) {
		got, untold, err := readHandOn(r)
		if untold {
			s.channel.RefusePublish(errNoPublish)
		}
		done(got, err)
	}
	s.send(ctx, p.target, c)
}

var errNoPublish = errors.New("a lock could not be handed to a waiter: PUBLISH is forbidden")

// A release or an acquire takes one tick of the register. Its fences are those from tick × 64 to tick × 64 + 63, one for each
// grant of a turn.
const fencesOfTick = 64

// releaseCall hands the lock to the first in the queue, or deletes it, or keeps it for some time.
func (s *setNXPX) releaseCall(p *releaseParams) *node.Call {
	c := node.Eval(s.scripts.release, 3, &p.key, &p.fences, &p.queue, &p.token)
	c.Append(s.limits...)
	if p.entry != "" || p.next != "" || p.keep > 0 {
		c.Append(p.entry)
	}
	if p.next != "" || p.keep > 0 {
		c.Append(p.next, p.waited.Microseconds())
		c.AppendLatest()
	}
	return p.released(c)
}

// readHandOn reads the replies of release.lua and semaphore_release.lua. untold reports that PUBLISH is refused. If the lock is
// free for that reason, others that wait for it look seldom.
func readHandOn(r node.Reply) (got releaseReply, untold bool, err error) {
	n, count := integers(r.Value, 0)
	switch {
	case count == 0 || r.Err != nil:
		answer, err := readRelease(r)
		return releaseReply{wanted: answer == -2}, answer < 0, err
	case count < 3, min(n[1], n[2], n[3]) < 0:
		return got, false, oddReply(r.Value)
	}
	at := time.Duration(n[1])*time.Second + time.Duration(n[2])*time.Microsecond
	return releaseReply{wanted: n[0] == -2, at: at, tick: uint64(n[3])}, n[0] < 0, nil
}

func (s *setNXPX) inspect(ctx context.Context, t *target, done func(Status, error)) {
	s.read(ctx, t, inspectCall(t), done)
}

// read posts c, which inspects t.
func (s *setNXPX) read(ctx context.Context, t *target, c *node.Call, done func(Status, error)) {
	c.Done = func(r node.Reply) { done(readInspect(r)) }
	s.send(ctx, t, c)
}

// WAIT waits for the writes of its own connection. On another connection it answers at once, about other writes. So
// it is pipelined with the script whose write it must confirm.

// withReplicas adds WAIT to a grant that replicas must confirm.
func (p *leaseParams) withReplicas(c *node.Call) *node.Call {
	if p.replicas > 0 {
		c.Timeout = p.replicaTimeout // added to that of the command
		c.Key = p.key
		c.Then = []any{"wait", p.replicas, p.replicaTimeout.Milliseconds()}
	}
	return c
}

// confirmed returns err, or an error if too few replicas have confirmed the grant.
func (p *leaseParams) confirmed(r node.Reply, err error) error {
	if err != nil || p.replicas == 0 {
		return err
	}
	got, _ := r.Then.Value.(int64)
	switch err := r.Then.Err; {
	case node.Answered(err): // the command is unknown or forbidden
		return fmt.Errorf("%w: WithReplicas needs WAIT, which this Redis refuses: %w", errors.ErrUnsupported, err)
	case err != nil:
		return fmt.Errorf("WAIT: %w", err)
	case got < int64(p.replicas):
		return fmt.Errorf("%w: %d of %d replicas confirmed it within %v", ErrNotReplicated, got, p.replicas, p.replicaTimeout)
	}
	return nil
}

// checkReplicas refuses WithReplicas if it cannot work.
func (s *setNXPX) checkReplicas(cfg *config) error {
	if cfg.replicas == 0 {
		return nil
	}
	var reads time.Duration
	switch client := s.node.Client().(type) {
	case *redis.Client:
		reads = client.Options().ReadTimeout
	case *redis.ClusterClient:
		reads = client.Options().ReadTimeout
	default:
		return invalid("WithReplicas(%d, %v): a %T cannot send WAIT on the connection of the grant",
			cfg.replicas, cfg.replicaTimeout, client)
	}
	if reads > 0 && cfg.replicaTimeout >= reads {
		return invalid("WithReplicas(%d, %v): not below the client's ReadTimeout, %v",
			cfg.replicas, cfg.replicaTimeout, reads)
	}
	if cfg.replicaTimeout >= clock.Validity(cfg.ttl, cfg.drift) {
		return invalid("WithReplicas(%d, %v): too long for a TTL of %v", cfg.replicas, cfg.replicaTimeout, cfg.ttl)
	}
	return nil
}
