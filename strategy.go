package redlatch

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/inbox"
	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/rediserr"
)

// A strategy is one way to keep a lock in Redis. It knows commands and replies only: it never waits
// for a lock, renews it or judges when a lease ends.
type strategy interface {
	// adapt refuses options that the strategy does not support, and rounds those that it supports
	// in part.
	adapt(cfg *config) error

	// keyOf returns the name in Redis of key, behind prefix, or refuses it.
	keyOf(prefix, key string) (string, error)

	// wordsOf returns the words for a name that keyOf has returned.
	wordsOf(prefix, name string) words

	// do sends an operation. to hears the reply once, within a small multiple of the timeout,
	// whatever the settings of the client are. Of ctx only the values are used. An operation has one
	// of three outcomes: done (reply.err is nil), known not done (see knownNotDone), or unknown (any
	// other error). After an acquire of unknown outcome the engine releases the token. By then
	// nothing of the acquire runs any more, unless the reply says that it was resent.
	do(ctx context.Context, op op, p *params, to hearer)

	// trouble returns why an operation has had no outcome for a time.
	trouble(op op, p *params, since time.Duration) error

	// underWay returns how many commands are under way, or due.
	underWay() int
}

// An op is an operation of a strategy. Unless the token holds the key, all but toAcquire and
// toInspect fail with ErrLost.
type op string

const (
	toAcquire op = "acquire" // take the key, or keep it, for the token. A refusal, ErrNotAcquired, describes the holder
	toExtend  op = "extend"  // make the lock last for the TTL from now on, and never shorten it
	toAdopt   op = "adopt"   // extend the lock for a new handle, and issue a fence for it
	toRelease op = "release" // give the key back, or keep others out with it for some time
	toInspect op = "inspect" // read who holds the key
)

// traits are what the engine must know of a strategy.
type traits struct {
	name    Strategy
	clients []redis.UniversalClient
	nodes   []*node.Node // that may fail while the strategy still works: Hooks.Trouble reports their failures
	names   []string     // of these
	limit   int          // of the permits of a semaphore or read-write lock; 0: a key has one holder
	reads   bool         // the holders of a key are readers. Those of this process share permits, see read_write.go
	writes  bool         // the holders of a key are writers beside the readers of pair
	pair    *engine      // of a Locker for writers: that for the readers of the same keys
	quorum  bool         // an attempt may be undone late, so each has a token of its own; releases know of contention
	keeps   bool         // a release can keep others out for some time
	inbox   *inbox.Inbox // of what is handed to this process; nil: a release hands nothing on, and lines poll
}

// several reports whether a key can have several holders. If no call has another limit, a limit of 1
// is that of a lock.
func (t *traits) several(cfg *config) bool { return max(cfg.limit, t.limit) > 1 }

// permits reports whether callers hold the permits of a semaphore, each with a token of its own.
func (t *traits) permits(cfg *config) bool { return t.several(cfg) && !t.reads && !t.writes }

// names has the names of a lock: for callers, and in Redis with those of its companion keys.
type names struct {
	key  string // as the caller named it, without the prefix
	lock string // in Redis, with the prefix
	at   words
}

// words has the names in Redis as words of commands, which are strings. A word is nil if the strategy
// has no such key. They are made when something is to be sent: most callers of a hot key send
// nothing.
type words struct {
	key    any
	fences any // the register or counter of its fences
	others any // their queue, or with a quorum the mark that others want the lock
}

// An identity says which lock an operation is about, by which token.
type identity struct {
	*names
	token     string       // what proves ownership; empty to inspect
	tokenOps  *tokenOps    // the order of the commands of the token, with Redlock
	abandoned *atomic.Bool // to acquire: nobody waits for the lock any more

	// resentUntil is until when an earlier send of an acquire with the token may be carried out; 0:
	// there was none. A release may run before that send, so it is sent once more. A quorum knows
	// this of each node.
	resentUntil clock.Mono
}

// params say what to do with a lock. A strategy may keep them, so they do not change.
type params struct {
	*identity
	timeout time.Duration // of one command on one node
	ttl     time.Duration // to acquire, extend or adopt

	cfg *config // to acquire or adopt

	// Of the queue, to acquire or release.
	entry  string        // to acquire: what to put into the queue if the key is held; to release: what to take out
	queued bool          // to acquire: the entry should be in the queue already
	beside string        // to acquire, for a reader: a token that must hold a permit
	next   string        // to release: the entry of the line of the releaser, to put into the queue
	waited time.Duration // how long the line of entry, or of next, has waited

	*restoring // to extend

	// To release.
	keep  time.Duration // keep others out for this time, see wire.Keeper; 0: hand the lock on
	began clock.Mono    // when the release was first asked for: what a repeat queues or keeps counts from then
}

// A restoring says what a node of a quorum does that has lost the lock.
type restoring struct {
	fence   uint64        // of the lock
	restore time.Duration // it restores the lock for this time; 0: it does not
}

// ttlWord returns the TTL in ms as a word of a command.
func (p *params) ttlWord() any {
	if p.cfg != nil {
		return p.cfg.askedMS // made once, for all calls
	}
	return p.ttl.Milliseconds()
}

// confirms reports whether replicas must confirm the grant.
func (p *params) confirms() bool { return p.cfg != nil && p.cfg.replicas > 0 }

// A hearer hears the reply to an operation. It must not block.
type hearer interface{ hear(got reply) }

// A reply is the outcome of an operation. Each waits in an answer, so it is small.
type reply struct {
	err  error
	tick uint64      // of the fences: of acquire and adopt, or of the lock that a release handed to next; 0: none
	at   clock.Redis // when it was carried out, of acquire with an entry and of release with next; 0: unknown

	recheckAfter time.Duration // of acquire: check again after this time, even without renewal; 0: never

	// Of a refusal.
	left   time.Duration // what is left of the holder's lease; 0: unknown
	holder string        // the token that has the key; empty: unknown
	first  bool          // the entry is the first in the queue

	// Of acquire.
	resent   bool // an earlier send may be carried out until the timeout has passed, even after a refusal
	split    bool // refused though no answer shows an owner: several have attempted at once
	newEntry bool // the entry was not in the queue: if it should have been, it has lost its turn
	again    bool // the script has done its most and left the lock free: the same acquire goes on

	// Of release.
	contended bool // others asked for the lock meanwhile and were not handed it
	more      bool // the script has done its most, and others wait: a release by the token alone goes on

	seen *inspection // of inspect; nil: the nodes of a quorum agree on no holder
}

// An inspection is what inspect has read.
type inspection struct {
	status Status
	kept   []string // values that keep permits, if the key can have several holders
}

// knownNotDone reports whether err is the second of the three outcomes: the operation was not done
// and left nothing behind.
func knownNotDone(err error) bool {
	return errors.Is(err, ErrNotAcquired) || errors.Is(err, ErrInvalid) ||
		errors.Is(err, ErrNoQuorum) || errors.As(err, new(*rediserr.NotDone))
}

// A parse reads the reply to a command.
type parse func(node.Reply) reply

// A single is a strategy on one Redis. SetNXPX, Semaphore and LegacySetNX are singles with commands
// of their own.
type single struct {
	node       *node.Node
	confirming *node.Node // for commands that wait for replicas
	kind       clientKind
	pending    *pending

	command func(op, *params) (*node.Call, parse)
}

func newSingle(client redis.UniversalClient) single {
	return single{
		node: node.New(client), confirming: node.NewSlow(client), kind: kindOf(client), pending: new(pending),
	}
}

func (s *single) underWay() int { return s.pending.and(s.node, s.confirming) }

func (s *single) trouble(_ op, p *params, since time.Duration) error {
	return silence(s.nodeFor(p), since)
}

// nodeFor returns the node that carries an operation.
func (s *single) nodeFor(p *params) *node.Node {
	if p.confirms() {
		return s.confirming.Of(p.lock)
	}
	return s.node.Of(p.lock)
}

// silence returns why a node has not answered for a time.
func silence(n *node.Node, since time.Duration) error {
	_, trouble := n.Health()
	return &rediserr.NoReply{Within: since.Round(time.Millisecond), Last: trouble}
}

func (s *single) do(ctx context.Context, op op, p *params, to hearer) {
	c, parse := s.command(op, p)
	c.Timeout, c.Began = p.timeout, p.began
	c.Insists, c.Urgent = op == toRelease, op == toExtend
	switch op {
	case toAcquire:
		c.Abandoned = p.abandoned
	case toRelease:
		if p.resentUntil > p.began {
			c.Again = p.resentUntil
		}
	}
	if p.confirms() {
		// WAIT waits for the writes of its own connection. On another one it answers at once, about
		// other writes. So it is pipelined with the script whose write it must confirm.
		c.Timeout += p.cfg.replicaTimeout
		c.Key, c.Then = p.lock, []any{"wait", p.cfg.replicas, p.cfg.replicaTimeout.Milliseconds()}
	}
	c.Done = func(in node.Reply) { //nolint:contextcheck // nobody waits for what a release has left
		got := parse(in)
		got.resent = in.Resent
		if p.confirms() && got.err == nil {
			got.err = p.cfg.confirmed(in.Then)
		}
		if got.more {
			s.goOn(p)
		}
		if got.again {
			s.askOn(p, to, got)
		} else {
			to.hear(got)
		}
		s.pending.done()
	}
	s.pending.begin()
	//nolint:contextcheck // of the ctx, a node uses only the values
	s.nodeFor(p).Post(ctx, c)
}

// goOn hands on what a release has left to others that wait. Nobody waits for that.
func (s *single) goOn(p *params) {
	id := identity{names: p.names, token: p.token}
	rest := params{identity: &id, timeout: p.timeout, began: clock.MonoNow()}
	s.do(context.Background(), toRelease, &rest, &answer{came: make(chan struct{})})
}

// An askedOn hears the reply to an acquire whose script did its most and left the lock free.
type askedOn struct {
	to    hearer
	until clock.Mono
	least time.Duration // that a further send needs
	sum   reply         // what the replies so far have in common
}

// askOn sends an acquire again whose script has done its most, for up to another timeout in sum. Further
// sends do not use the ctx of the call, which may have returned.
func (s *single) askOn(p *params, to hearer, got reply) {
	now := clock.MonoNow()
	a, again := to.(*askedOn)
	if !again {
		a = &askedOn{to: to, until: now.Add(p.timeout), least: p.timeout / 2}
	}
	a.sum.newEntry, a.sum.resent = a.sum.newEntry || got.newEntry, a.sum.resent || got.resent
	rest := *p
	if rest.timeout = a.until.Sub(now); rest.timeout >= a.least {
		s.do(context.Background(), toAcquire, &rest, a)
		return
	}
	a.hear(got)
}

func (a *askedOn) hear(got reply) {
	got.newEntry, got.resent = got.newEntry || a.sum.newEntry, got.resent || a.sum.resent
	var last *rediserr.NotDone
	if errors.As(got.err, &last) {
		got.err = last.Err // an earlier one may have queued the entry
	}
	a.to.hear(got)
}

// confirmed returns an error if too few replicas have confirmed a grant.
func (c *replication) confirmed(wait *node.Reply) error {
	got, _ := wait.Value.(int64)
	switch err := wait.Err; {
	case rediserr.Mistake(err): // the command is unknown or forbidden
		return fmt.Errorf("%w: WithReplicas needs WAIT, which this Redis refuses: %w", errors.ErrUnsupported, err)
	case err != nil:
		return fmt.Errorf("WAIT: %w", err)
	case got < int64(c.replicas):
		const text = "%w: %d of %d replicas confirmed it within %v"
		return fmt.Errorf(text, ErrNotReplicated, got, c.replicas, c.replicaTimeout)
	}
	return nil
}
