package redlatch

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"
)

// A strategy is one way to keep a lock in Redis. It knows commands and replies and nothing else:
// it never waits for a lock, renews it or judges when a lease ends.
//
// Every operation ends within a small multiple of claim.bound or soon after ctx, whatever the
// settings of the client, in one of three ways: done (nil); surely not done (a sentinel, see
// surelyNot); perhaps done (any other error). The engine undoes a perhaps. What an operation has
// still in flight when it returns is the strategy's own to take back.
type strategy interface {
	// name is the strategy's name in events.
	name() string

	// serves says which of the special options the strategy has a use for. Others are refused.
	serves() special

	// check refuses values that the strategy cannot serve, and rounds those it serves in part.
	check(cfg *config) error

	// place says where a lock on key is kept, or refuses a key that none can be kept on.
	place(key string) (place, error)

	// acquire takes claim.key for claim.token. It is idempotent: a key that the token holds
	// already is granted. A refusal is ErrNotAcquired, and the grant then says what is known of
	// the holder.
	acquire(ctx context.Context, c *claim) (grant, error)

	// extend makes the lock last for claim.ttl from now on and never shortens it. It fails with
	// ErrLost where the token does not hold the key.
	extend(ctx context.Context, c *claim) error

	// release gives the key back if the token holds it, else it fails with ErrLost. ctx is
	// detached from every caller: only the bound ends it.
	release(ctx context.Context, c *claim) error

	// inspect reads who holds c.key.
	inspect(ctx context.Context, c *claim) (Status, error)
}

// detached returns ctx with its values and without its end.
func detached(ctx context.Context) context.Context {
	if ctx.Done() == nil {
		return ctx
	}
	return context.WithoutCancel(ctx)
}

// special tells options that only some strategies have a use for.
type special struct{ serverTime, replicas bool }

// A claim is what an operation is about. It is not changed after it was handed to a strategy.
type claim struct {
	place
	token string        // what proves ownership; empty to inspect
	entry string        // what to queue where the key is held, and to leave on release; empty: nothing
	ttl   time.Duration // what to ask Redis for
	bound time.Duration // of one command on one node
	grain int           // of the clock below a fence counter, in µs; 0: 1

	chosen     bool // the caller chose the token, perhaps to recover a lock: only what is surely new is undone
	fenced     bool // the grant needs a fence
	placed     bool // the entry may be queued already
	keep       bool // a lease that the token has already is left as long as it is
	serverTime bool // see WithServerTime

	// To acquire and adopt alone, see WithReplicas.
	replicas       int
	replicaTimeout time.Duration

	life *life // what became of the lease; nil to inspect

	// To extend a lease that was granted: what it is. Only that is healed.
	fence   uint64
	trusted func() bool // whether it lasts
}

// life says what became of a lease, to operations that outlive their callers.
type life struct {
	state  atomic.Int32
	undone atomic.Bool // a straggler that landed after the end was undone
	shed   atomic.Bool // a node that answers nothing was not sent the release
}

const (
	lifeRefused  = 1 + iota // it never began
	lifeLost                // without Unlock; an adopter may live on by its token
	lifeReleased            // Unlock began
	lifeOver                // and its release has come back
)

// refused reports whether it never began.
func (l *life) refused() bool { return l.state.Load() == lifeRefused }

// lost reports whether it ended without Unlock.
func (l *life) lost() bool { return l.state.Load() == lifeLost }

// released reports whether Unlock was called.
func (l *life) released() bool { return l.state.Load() >= lifeReleased }

// settled reports whether its token is nobody's any more.
func (l *life) settled() bool { return l.refused() || l.state.Load() == lifeOver }

// A grant is what a node answers.
type grant struct {
	fence  uint64        // 0: the strategy issues none
	left   time.Duration // refused: what is left of the holder's lease; 0 when unknown
	found  bool          // granted: the token had the key already
	lookAt time.Duration // granted: look again after so long, also without renewal; 0: no need
	status *Status       // to inspect alone

	// Refused, where claim.entry asked for a place in the queue.
	holder string        // the token that has the key
	fresh  bool          // the place is new
	head   bool          // nobody is before; left is of use then
	at     time.Duration // what the clock of Redis showed; 0: it was not asked
}

// handsOn is a strategy whose release hands a lock to the next waiter.
type handsOn interface {
	strategy

	// subscription returns the channel for what is handed to this process, or nil where the
	// client cannot have one.
	subscription() *subscription
}

// entry returns what a waiter queues: how long a lease it wants, its process, which of that process's
// waiters it is, and its token. Without the number the next waiter with a chosen token would have the
// place that the last one is about to give up.
func entry(ttl time.Duration, channel string, number uint64, token string) string {
	return strconv.FormatInt(ttl.Milliseconds(), 10) + " " + channel + " " + strconv.FormatUint(number, 10) + " " + token
}
