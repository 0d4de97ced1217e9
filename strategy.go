package redlatch

import (
	"context"
	"strconv"
	"time"
)

// A strategy is one way to keep a lock in Redis. It knows commands and replies and nothing else: it never
// waits for a lock, renews it or judges when a lease ends.
//
// Every operation ends within a small multiple of its timeout or soon after ctx, whatever the settings of
// the client, in one of three ways: done (nil); known not done (a sentinel, see knownNotDone); unknown (any
// other error). The engine releases what an acquire of unknown outcome may have taken. What an operation
// still has under way when it returns, the strategy releases itself, see acquireParams.state.
type strategy interface {
	// name is the strategy's name in events.
	name() string

	// check refuses options that the strategy cannot serve, and rounds those it serves in part.
	check(cfg *config) error

	// place says where a lock on key, behind prefix, is kept, or refuses a key that none can be kept on.
	place(prefix, key string) (place, error)

	// acquire takes the key for the token. It is idempotent: a key that the token holds already is
	// granted. A refusal is ErrNotAcquired, and the reply then says what is known of the holder.
	acquire(ctx context.Context, p *acquireParams) (acquireReply, error)

	// extend makes the lock last for the TTL from now on and never shortens it. It fails with ErrLost
	// where the token does not hold the key.
	extend(ctx context.Context, p *extendParams) error

	// adopt does the same for a handle that is new, and mints a fence for it.
	adopt(ctx context.Context, p *acquireParams) (fence uint64, err error)

	// release gives the key back if the token holds it, else it fails with ErrLost. ctx bounds the waiting
	// only: the release goes on without the caller, within its timeout. wanted says that others asked for the
	// lock meanwhile, and were not handed it.
	release(ctx context.Context, p *releaseParams) (wanted bool, err error)

	// inspect reads who holds the key.
	inspect(ctx context.Context, t *target) (Status, error)
}

// handsOn is a strategy whose release hands a lock to the next waiter.
type handsOn interface {
	strategy

	// subscription returns the channel for what is handed to this process.
	subscription() *subscription
}

// ofNodes is a strategy with several nodes, of which some may fail while the others serve.
type ofNodes interface {
	strategy

	// onTrouble has told hear of each failure of a node, by its name. told does not block.
	onTrouble(told func(node string, err error))
}

// A target is the lock that an operation is about. It does not change once it was given to a strategy.
type target struct {
	place
	token       string        // what proves ownership; empty to inspect
	callerToken bool          // the caller chose the token, which may be to recover a lock
	timeout     time.Duration // of one command on one node
	serverTime  bool          // see WithServerTime
}

type acquireParams struct {
	target
	ttl    time.Duration
	entry  string // what to queue where the key is held; empty: nothing
	queued bool   // it should be in the queue already

	replicas       int // see WithReplicas; 0: none
	replicaTimeout time.Duration

	// state says what has become of the attempt, to commands that outlive it.
	state *lockState
}

type releaseParams struct {
	target
	entry      string // the place in the queue to give up; empty: none
	onlyHanded bool   // release only what was handed to that place, since the token may hold the key for another

	keep  time.Duration // do not release, but let the key last for so long and no longer; 0: release
	ended bool          // the key may have expired since it was kept: hand on all the same
}

// acquireReply is what is known after an acquire.
type acquireReply struct {
	// Granted.
	fence        uint64        // 0: the strategy issues none
	alreadyHeld  bool          // the token had the key before
	recheckAfter time.Duration // look again after so long, also without renewal; 0: no need

	// Refused.
	left   time.Duration // what is left of the holder's lease; 0 when unknown
	holder string        // the token that has the key; empty when unknown
	// lookWithin is how long may pass until the next look, also where the holder's lease lasts for longer; 0: no matter.
	lookWithin time.Duration

	// Refused, and a place in the queue was asked for.
	fresh bool          // the place is new
	first bool          // nobody is before
	at    time.Duration // what the clock of Redis showed; 0: it was not asked

	// The same, of a semaphore.
	shared bool     // holder is one of several, and nobody can overtake those who wait
	handed []string // the tokens that this process was handed permits for
}

type extendParams struct {
	target
	ttl   time.Duration
	lease *lease // so that nodes that lost it can be given it back
}

// detached returns ctx with its values and without its end.
func detached(ctx context.Context) context.Context {
	if ctx.Done() == nil {
		return ctx
	}
	return context.WithoutCancel(ctx)
}

// entry returns what a waiter queues: how long a lease it wants, its process, a random number, and its token.
// A dash before the process says that it polls. The number tells the place from that of another waiter with
// the same token, and keeps those who cannot read the queue from forging a handover.
func entry(ttl time.Duration, polls bool, channel string, number uint64, token string) string {
	if polls {
		channel = "-" + channel
	}
	return strconv.FormatInt(ttl.Milliseconds(), 10) + " " + channel + " " + strconv.FormatUint(number, 10) + " " + token
}
