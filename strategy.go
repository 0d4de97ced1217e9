package redlatch

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/handoff"
	"github.com/redlatch/redlatch/internal/node"
)

// A strategy is one way to keep a lock in Redis. It knows commands and replies only: it never waits for a lock,
// renews it or judges when a lease ends.
//
// Every operation calls back once, within a small multiple of its timeout, whatever the settings of the client are. The
// callback must not block. Of a ctx only the values are used. An operation has one of three outcomes: done (nil), known not
// done (see knownNotDone), or unknown (any other error). After an acquire of unknown outcome the engine releases the token.
// By then nothing of the acquire runs any more, unless the reply says that it was resent.
type strategy interface {
	// name is the strategy's name in events.
	name() string

	// clients returns the clients of all its servers.
	clients() []redis.UniversalClient

	// check refuses options that the strategy does not support, and rounds those that it supports in part.
	check(cfg *config) error

	// place returns where a lock on key, behind prefix, is kept, or refuses the key.
	place(prefix, key string) (place, error)

	// acquire takes the key for the token. It is idempotent: if the token already holds the key, it is granted. A
	// refusal is ErrNotAcquired, and the reply then describes the holder.
	acquire(ctx context.Context, p *leaseParams, done func(acquireReply, error))

	// extend makes the lock last for the TTL from now on and never shortens it. It fails with ErrLost if the token
	// does not hold the key.
	extend(ctx context.Context, p *leaseParams, done func(struct{}, error))

	// adopt extends the lock for a new handle, and issues a fence for it.
	adopt(ctx context.Context, p *leaseParams, done func(fence uint64, err error))

	// release gives the key back, or keeps others out with it for some time, if the token holds it, else it fails with
	// ErrLost.
	release(ctx context.Context, p *releaseParams, done func(releaseReply, error))

	// inspect reads who holds the key.
	inspect(ctx context.Context, t *target, done func(Status, error))

	// trouble says why an operation op on t has no outcome since a time.
	trouble(op string, t *target, since time.Duration) error

	// habits says what lines must know of the strategy.
	habits() habits
}

// habits are what lines must know of a strategy.
type habits struct {
	shares      bool                  // a key may have several holders
	freshTokens bool                  // each attempt needs a token of its own, since it may be undone late
	tells       bool                  // releaseReply.wanted is known
	keeps       bool                  // a release can keep others out for some time
	passes      bool                  // the fence of a grant leaves room for others, so a turn may pass the lock on
	channel     *handoff.Subscription // of what is handed to this process; nil: a release hands nothing on
}

// knownNotDone reports whether err is the second of the three outcomes: the operation was not done and left nothing
// behind.
func knownNotDone(err error) bool {
	return errors.Is(err, ErrNotAcquired) || errors.Is(err, ErrInvalidOption) ||
		errors.Is(err, ErrNoQuorum) || errors.As(err, new(*node.NotDone))
}

// ofNodes is a strategy with several nodes, of which some may fail while it still works.
type ofNodes interface {
	strategy

	// onTrouble sets report, which is called with the name of a node and its error after each failure. It must not
	// block.
	onTrouble(report func(node string, err error))
}

// A target is the lock that an operation is about. A strategy may keep it, so it does not change.
type target struct {
	place
	token   string        // what proves ownership; empty to inspect
	timeout time.Duration // of one command on one node
	ballot  *ballot       // the order of the commands of the token, with Redlock
}

// leaseParams say which lock to acquire, extend or adopt, and for how long.
type leaseParams struct {
	target
	ttl   time.Duration
	ttlMS int64 // the same in ms, kept here since a call refers to it

	// To acquire.
	entry  string        // what to put into the queue if the key is held; empty: nothing
	queued bool          // the entry should be in the queue already
	waited time.Duration // how long the line has waited

	// To acquire or adopt.
	replicas       int // see WithReplicas; 0: none
	replicaTimeout time.Duration

	// To extend. A node of a quorum that has lost the lock restores it for restoreMS, with its fence.
	fence     uint64
	restoreMS int64 // 0: it does not
}

type releaseParams struct {
	*target
	entry  string        // the entry to take out of the queue; empty: none
	next   string        // the entry of the line of the releaser, to put into the queue; empty: none
	waited time.Duration // how long that line has waited
	keep   time.Duration // keep others out for this time, by the value of keeper; 0: hand the lock on
}

type releaseReply struct {
	wanted bool // others asked for the lock meanwhile and were not handed it

	// With releaseParams.next.
	at   time.Duration // the clock of Redis
	tick uint64        // that entry was handed the lock, with the fences of this tick; 0: it was not
}

// acquireReply is the reply to an acquire. A refusal sets the fields from Refusal on.
type acquireReply struct {
	fence        uint64        // the first of the grant; 0: the strategy issues none
	resent       bool          // an earlier send may be carried out until the timeout has passed, even after a refusal
	recheckAfter time.Duration // check again after this time, even without renewal; 0: never
	split        bool          // refused though no answer shows an owner: several have attempted at once

	handoff.Refusal
}
