package redlatch

import (
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/inbox"
	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/wire"
)

var lockScripts = scriptsOf("")

// NewSetNXPX returns a Locker that keeps each lock as one key of one Redis:
//
//	acquire  SET key token NX PX ttl, in a script that issues a fence
//	release  DEL key, if it still holds the token
//
// If others wait, the release sets the key to the token of the next owner instead, so the lock is
// never free in between.
//
// This is the pattern that the documentation of SET describes. It excludes other owners while that
// Redis loses no data and does not fail over, and its clock does not jump forward. [Lock.Fence]
// lets a resource reject the older of two owners.
//
// All fences come from one key, the prefix of [WithKeyPrefix] followed by redlatch:fence. That key
// cannot be locked. With a *[redis.ClusterClient] there is one for each hash tag, and for each key
// without a tag, so use that client in all processes or in none. With a *[redis.Ring] there is one on
// each shard. Any other client must reach the same server for all keys. With a proxy that shards keys,
// use a prefix with a hash tag, such as {locks}:, which keeps all locks on one server.
//
// client may be of any kind. A *[redis.ClusterClient] or *[redis.Ring] is recognized by its methods,
// also in a struct that embeds it. A [redis.AutoPipeliner], or a struct that embeds
// [redis.UniversalClient], hides them, and works for one server only. Retries and timeouts of the
// client need no tuning: [WithOpTimeout] bounds every command. A *[redis.Client] is the fastest,
// because commands of concurrent callers share its connections as pipelines. opts are the defaults of
// the Locker. [Locker] describes its cost while callers wait, and why to share it.
//
// The error is [ErrInvalid] for a nil client or an option that cannot work.
func NewSetNXPX(client redis.UniversalClient, opts ...Option) (Locker, error) {
	if err := checkClient(client); err != nil {
		return nil, wrap("new setnxpx", "", err)
	}
	s := newSetNXPX(client, lockScripts, "queue")
	return newEngine(s, traits{
		name: StrategySetNXPX, clients: []redis.UniversalClient{client}, inbox: s.inbox, keeps: true,
	}, opts)
}

func newSetNXPX(client redis.UniversalClient, scripts scripts, queue string) *setNXPX {
	s := &setNXPX{single: newSingle(client), client: client, scripts: scripts, queue: queue}
	s.command, s.handOn = s.commands, s.readHandOn
	if s.kind == ring { // it keeps channels and keys on different nodes
		client = nil
	}
	s.inbox = inbox.New(client)
	s.inbox.Spread = s.kind == cluster
	s.inbox.Served = func(since clock.Mono) bool { return s.node.Served(since) || s.confirming.Served(since) }
	return s
}

// setNXPX is the strategy of NewSetNXPX, NewSemaphore and NewReadWrite, whose scripts have the same
// arguments and replies.
type setNXPX struct {
	single
	client  redis.UniversalClient
	inbox   *inbox.Inbox
	scripts scripts
	queue   string // the companion key that is the queue
	limit   int    // of a semaphore or read-write lock; 0: it is neither
	limits  bool   // calls may have limits of their own
	handOn  parse  // of a release
}

func (s *setNXPX) keyOf(prefix, key string) (string, error) {
	name := prefix + key
	if rest, is := strings.CutSuffix(name, wire.Register); is && rest == s.registerOf(prefix, name) {
		return name, invalid("key %q: the fences of all locks are kept there", key)
	}
	return name, s.kind.check(prefix, key)
}

// register is the name of the register as a word of a command.
var register any = wire.Register

// registerOf returns what stands before wire.Register in the name of the register.
func (s *setNXPX) registerOf(prefix, name string) string {
	if s.kind == cluster {
		return "{" + wire.SlotTag(name) + "}:"
	}
	return prefix
}

func (s *setNXPX) wordsOf(prefix, name string) words {
	fences := register
	if before := s.registerOf(prefix, name); before != "" {
		fences = before + wire.Register
	}
	return words{key: name, fences: fences, others: wire.Companion(s.queue, name)}
}

func (s *setNXPX) commands(op op, p *params) (*node.Call, parse) {
	switch op {
	case toAcquire:
		c := node.Eval(s.scripts.acquire, 3, p.at.key, p.at.fences, p.at.others, &p.token, p.ttlWord())
		if s.limit > 0 {
			c.Append(p.cfg.limitWord)
		}
		c.AppendLatest()
		if p.entry != "" {
			c.Append(&p.entry, p.waited.Microseconds())
		}
		if p.beside != "" {
			c.Append("", &p.beside)
			return c, readBeside
		}
		if p.queued {
			c.Append("again")
		}
		return c, readAcquire
	case toExtend:
		return node.Eval(s.scripts.extend, 1, p.at.key, &p.token, p.ttlWord()), readExtend
	case toAdopt:
		return node.Eval(s.scripts.extend, 2, p.at.key, p.at.fences, &p.token, p.ttlWord()), readExtend
	case toRelease:
		return s.releaseCall(p)
	}
	return node.Eval(s.scripts.inspect, 2, p.at.key, p.at.others), readInspect
}

// releaseCall hands the lock to the first in the queue, or deletes it, or keeps it for some time.
func (s *setNXPX) releaseCall(p *params) (*node.Call, parse) {
	c := node.Eval(s.scripts.release, 3, p.at.key, p.at.fences, p.at.others, &p.token)
	if p.entry != "" || p.next != "" || p.keep > 0 {
		c.Append(&p.entry)
	}
	if p.next != "" || p.keep > 0 {
		c.Append(&p.next, p.waited.Microseconds())
		c.AppendLatest()
	}
	return keeping(c, p, s.handOn)
}

// readHandOn reads the replies of release.lua and semaphore_release.lua. If PUBLISH is refused, it
// tells the inbox. If the lock is free for that reason, this process leaves it to others, which look
// seldom.
func (s *setNXPX) readHandOn(r node.Reply) (got reply) {
	r.Value, got.more = leavesMore(r.Value)
	n, count := integers(r.Value, 0)
	switch {
	case count == 0 || r.Err != nil:
		n[0], got.err = readRelease(r)
	case count < 3, min(n[1], n[2], n[3]) < 0:
		return reply{err: oddReply(r.Value)}
	default:
		got.at, got.tick = clock.RedisAt(n[1], n[2]), uint64(n[3])
	}
	if got.contended = n[0] == -2; n[0] < 0 {
		s.inbox.RefusePublish(errNoPublish)
	}
	return got
}

var errNoPublish = errors.New("a lock could not be handed to a waiter: PUBLISH is forbidden")

// adapt refuses WithoutQueue for permits, WithLimit for all but semaphores, and WithReplicas if it
// cannot work.
func (s *setNXPX) adapt(cfg *config) error {
	switch {
	case cfg.limited && s.limit == 0:
		return refuseLimit("setnxpx", cfg)
	case cfg.limited && !s.limits:
		return refuseLimit("a read-write lock", cfg)
	case cfg.noQueue && s.limit > 0:
		return invalid("WithoutQueue: permits are granted in the order of arrival")
	}
	if cfg.replicas == 0 {
		return nil
	}
	n, timeout, reads := cfg.replicas, cfg.replicaTimeout, time.Duration(0)
	switch client := s.client.(type) {
	case *redis.Client:
		reads = client.Options().ReadTimeout
	case *redis.ClusterClient:
		reads = client.Options().ReadTimeout
	default:
		return invalid("WithReplicas(%d, %v): a %T cannot send WAIT on the connection of the grant", n, timeout, client)
	}
	switch {
	case reads > 0 && timeout >= reads:
		return invalid("WithReplicas(%d, %v): not below the client's ReadTimeout, %v", n, timeout, reads)
	case timeout >= clock.Validity(cfg.ttl, cfg.grace):
		const text = "WithReplicas(%d, %v): not below the %v for which a lock with a TTL of %v is trusted"
		return invalid(text, n, timeout, clock.Validity(cfg.ttl, cfg.grace), cfg.ttl)
	}
	return nil
}
