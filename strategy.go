package redlatch

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/handoff"
	"github.com/redlatch/redlatch/internal/node"
)

// A strategy is one way to keep a lock in Redis. It knows commands and replies only: it never waits for a lock,
// renews it or judges when a lease ends.
//
// Every operation ends within a small multiple of its timeout, or soon after ctx, whatever the settings of the client
// are. It has one of three outcomes: done (nil), known not done (see knownNotDone), or unknown (any other error).
// After an acquire of unknown outcome the engine releases the token. The strategy itself releases what commands do
// that are still under way when the operation returns, see leaseParams.state.
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
	acquire(ctx context.Context, p *leaseParams) (acquireReply, error)

	// extend makes the lock last for the TTL from now on and never shortens it. It fails with ErrLost if the token
	// does not hold the key.
	extend(ctx context.Context, p *leaseParams) error

	// adopt extends the lock for a new handle, and issues a fence for it.
	adopt(ctx context.Context, p *leaseParams) (fence uint64, err error)

	// release gives the key back, or keeps others out with it for some time, if the token holds it, else it fails with
	// ErrLost. ctx bounds the waiting only: the release continues without the caller, within its timeout.
	release(ctx context.Context, p *releaseParams) (releaseReply, error)

	// inspect reads who holds the key.
	inspect(ctx context.Context, t *target) (Status, error)

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
}

// leaseParams say which lock to acquire, extend or adopt, and for how long.
type leaseParams struct {
	target
	ttl   time.Duration
	ttlMS int64      // the same in ms, kept here since a call refers to it
	state *lockState // of the attempt or lease. Commands that outlive their caller read it

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
	alreadyHeld  bool          // the token had the key before
	resent       bool          // an earlier send may be carried out as well, even after a refusal
	recheckAfter time.Duration // check again after this time, even without renewal; 0: never

	handoff.Refusal
}

// detached returns ctx with its values and without its end.
func detached(ctx context.Context) context.Context {
	if ctx.Done() == nil {
		return ctx
	}
	return context.WithoutCancel(ctx)
}

// A lockState is the state of an attempt and of the lease that it became; the diagram is above lease. Commands that
// outlive their callers read it. Only attempt, lease and Redlock's takeBack change it.
type lockState struct {
	now atomic.Int32

	// again reports that the grant found the key held by the token: an earlier send had taken it, and its reply may come
	// late.
	again atomic.Bool

	// undone reports that a late acquire was released after the lease ended. Then Unlock does not report a loss if
	// its own release found no lock.
	undone atomic.Bool
}

const (
	asking = iota
	refused
	held
	lost
	releasing
	kept
	over
)

func (s *lockState) is(state int32) bool { return s.now.Load() == state }

func (s *lockState) become(state int32) { s.now.Store(state) }

// settled reports whether nobody owns the token any more.
func (s *lockState) settled() bool { return s.is(refused) || s.is(over) }

// unwanted reports whether a late acquire must be undone. err is nil if it was granted, with the reply got. After the end
// of an attempt or of a lease a release is under way; the acquire needs another only if that release overtook it. A
// lost lock may have been adopted, so it is released only if the acquire is known to have taken the key anew. A key that is
// held or kept must stay.
func (s *lockState) unwanted(got acquireReply, err error, overtaken bool) bool {
	switch s.now.Load() {
	case refused, releasing, over:
		return overtaken
	case lost:
		return err == nil && !got.alreadyHeld && !s.again.Load()
	}
	return false
}

// A late acquire whose connection the client gave up brings no reply. reap looks for its key: first after firstLook,
// then after pauses that double up to lastLook. While the server answers nothing, the pauses do not grow, for up to
// lookFor.
const (
	firstLook = 250 * time.Millisecond
	lastLook  = 4 * time.Second
	lookFor   = time.Minute
)

// late handles a reply r that came late from n. got and err are its content. If nobody wants the lock, late calls
// undo.
func (p *leaseParams) late(n *node.Node, r node.Reply, got acquireReply, err error, undo func()) {
	if knownNotDone(err) {
		return
	}
	if node.MayStillRun(err) {
		p.state.reap(n, undo)
	}
	if p.state.unwanted(got, err, r.Overtaken) {
		undo()
	}
}

// reap calls undo for a late acquire that brings no reply. Its timers end with the last look. Nobody waits for them.
func (s *lockState) reap(n *node.Node, undo func()) {
	end := time.Now().Add(lookFor)
	var after func(pause time.Duration)
	after = func(pause time.Duration) {
		time.AfterFunc(pause, func() {
			if s.settled() {
				undo()
			}
			switch {
			case n.Silent() && time.Now().Before(end):
				after(pause)
			case pause < lastLook:
				after(2 * pause)
			}
		})
	}
	after(firstLook)
}
