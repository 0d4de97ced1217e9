package line

import (
	"time"

	"github.com/redlatch/redlatch/internal/clock"
)

// State is what a line does. The package comment has the diagram.
type State uint8

// What a line does.
const (
	Idle State = iota
	Asking
	Waiting
	Holding
)

func (s State) String() string { return [...]string{"Idle", "Asking", "Waiting", "Holding"}[s] }

// Facts are what the shell knows when an event happens.
type Facts struct {
	Now     clock.Mono
	Queues  bool          // the line waits in the queue of Redis: a release hands the lock to the first of it
	Listens bool          // SUBSCRIBE is confirmed, so messages of Redis come to this process
	Untold  bool          // the line polls, since others that want the key, too, cannot tell whom they hand it to
	Took    time.Duration // of an acquire at present, on average
	Idle    time.Duration // of an acquire when Redis is idle: the least of late
	Yield   clock.Mono    // until then this process leaves the key to others, who would never find it free otherwise
	Random  float64       // in [0, 1), another one for each event
}

// Config is what does not change while a line lasts.
type Config struct {
	Dash     bool          // entries always have a dash: PUBSUB NUMSUB does not count this process
	Several  bool          // a key may have several holders, as a semaphore has
	Together bool          // of a line that shares: one token serves all of its callers
	Quorum   bool          // each attempt needs its own token. A Give sets Facts.Yield if others want the key
	Confirms bool          // only a reply grants the lock, so a message makes the line ask: see WithReplicas
	Passes   int           // how often a turn may pass the lock on
	TTL      time.Duration // of the lock
	Shortest time.Duration // pauses between polls double from Shortest to Longest
	Longest  time.Duration
}

// An Answer is how an attempt ended.
type Answer uint8

// How an attempt ended.
const (
	None        Answer = iota // No attempt has ended yet.
	Held                      // This process holds the key.
	Refused                   // Another token holds the key.
	Failed                    // The attempt failed, or its outcome is unknown.
	Permanent                 // The attempt failed, and retrying cannot fix that.
	Late                      // The key was granted, but nothing is left of the lease.
	Unconfirmed               // The key was granted, but the grant cannot be used: see Config.Confirms.
)

func (a Answer) String() string {
	return [...]string{"none", "held", "refused", "failed", "permanent", "late", "unconfirmed"}[a]
}

// An Outcome is what is known of an attempt that was not granted.
type Outcome struct {
	Answer Answer
	Err    error // for the callers; nil if Answer is Held
	Clean  bool  // apart from its entry, the attempt has left nothing in Redis, and cannot run later
	Ended  bool  // a message has handed the key to the token meanwhile, and that claim has ended
	Opens  bool  // of a failure: the first connection still opens, so nobody's wait ends

	// Of a refusal.
	Left     time.Duration // what is left of the holder's lease; 0: unknown
	First    bool          // the entry is the first in the queue
	NewEntry bool          // the entry is new
	Foreign  bool          // the holder does not hand the lock on
	Moved    bool          // another token held the key at the refusal before
}

// News is what a line can report to a caller whose ctx has ended.
type News struct {
	Outcome             // the newest one
	At       clock.Mono // when it came
	Asking   clock.Mono // since when an acquire is under way; 0: none is
	Attempts int        // since the caller joined
}

// Entry is what an acquire puts into the queue of Redis if the key is held.
type Entry uint8

// What goes into the queue.
const (
	NoEntry Entry = iota
	Plain
	Dashed // PUBSUB NUMSUB does not say whether the process listens.
)

func (e Entry) String() string { return [...]string{"no", "a plain", "a dashed"}[e] }

// Kind is what an effect does.
type Kind uint8

// What to do.
const (
	Ask         Kind = iota // Send an acquire for Token. If NewToken is set, make it first, and call Made.
	Give                    // Release Token, and take its entry out of the queue. With Next, that carries an Ask.
	Serve                   // Caller has the lock, as number Pass of the turn with Token.
	Fail                    // The wait of Caller ends with Err.
	Tell                    // Call Hooks.Waiting, or Moved, of Caller with Err; nil: this process holds the key.
	Look                    // Call Due at At, and not at the time of an earlier Look.
	Subscribe               // Open the channel, and report its changes to this line.
	Unsubscribe             // End this use of the channel.
	Missed                  // A message was lost. Reconnect the channel, unless SUBSCRIBE was confirmed since At.
)

func (k Kind) String() string {
	return [...]string{"Ask", "Give", "Serve", "Fail", "Tell", "Look", "Subscribe", "Unsubscribe", "Missed"}[k]
}

// An Effect is something that the shell must do.
type Effect[T, A any] struct {
	Kind     Kind
	Entry    Entry // of an acquire
	NewToken bool  // of an acquire: its token is new
	Again    bool  // of an acquire: the entry should be in the queue already
	Handed   bool  // of Serve: the lease is that of the message, not that of a reply
	Moved    bool  // of Tell: Caller knows of a refusal, and the key has another holder since
	Pass     int   // of Serve: 0 begins a turn
	Token    uint64
	Next     uint64        // of Give: the fresh token of the acquire that it carries; 0: it carries none
	Of       A             // of Token; unset for an Ask with NewToken
	Asks     A             // unset. The shell may note here what it has made for a fresh token
	At       clock.Mono    // of Look and Missed
	Age      time.Duration // of an acquire: how long the first caller has waited
	Caller   *Caller[T]    // of an acquire: the first in line
	Attempts int           // of Serve, Fail and Tell: how often the line has asked since Caller joined
	Err      error         // of Fail and Tell
}
