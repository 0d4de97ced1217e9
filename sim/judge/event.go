// Package judge says whether what was seen in a simulated world is what docs/guarantees.md promises.
//
// Its input is a list of events, each at its virtual instant. A file has one rule, and begins with
// the sentence that the rule checks.
package judge

import (
	"fmt"
	"math"
	"time"

	"github.com/redlatch/redlatch"
)

// Never is later than all instants.
const Never time.Duration = math.MaxInt64

// A Mode says with whom the holder of a key may share it.
type Mode string

// The modes.
const (
	Alone  Mode = "alone"
	Permit Mode = "permit" // of a semaphore
	Reader Mode = "reader"
	Writer Mode = "writer"
)

// An Ask is what a call asks for.
type Ask struct {
	Op     int      // of the plan
	What   string   // the function or method
	Hold   int      // whose method it is; 0: that of no lock
	Places []string // the keys in Redis
	Owner  string   // is in the tokens of its Locker
	Line   string   // callers of equal lines are served in their order; "": it stands in none
	Mode   Mode
	Limit  int  // of a permit
	Lock   bool // a permit that counts as a lock: neither it nor its Locker has a limit above 1

	Strategy redlatch.Strategy // empty: that of one of two sides

	TTL, Timeout, MaxHold, MinHold time.Duration
	Grace, MaxWait                 time.Duration
	Trip                           time.Duration // to a server and back
	Closed                         time.Duration // when its client is; 0: never
	Poll                           time.Duration // the longest pause of a caller that polls
	Fixed                          bool          // the lock is not renewed
	Queues                         bool          // the callers of a key queue in Redis
	Fenced, Quorum, Whole          bool          // the TTL of Whole is rounded up to seconds
	Migrates                       bool
	Confirms                       bool // with WithReplicas
}

// A Kind is a kind of Event.
type Kind string

// The kinds of events, and their fields.
const (
	Called    Kind = "called"    // Call, Ask, Ends
	Returned  Kind = "returned"  // Call, Err
	Granted   Kind = "granted"   // Call, Hold, Places, Fence, Until; Of, of Adopt
	Checked   Kind = "checked"   // Hold, Err, Until: the answers of Err and Until
	Unlocking Kind = "unlocking" // Hold, For: Unlock or UnlockAfter is called, or a function under the lock returns
	Ended     Kind = "ended"     // Hold, Err, Gone: Done was closed
	Panicked  Kind = "panicked"  // Call, Text
	Runs      Kind = "runs"      // Call: a function, under its locks
	RunEnds   Kind = "run ends"  // Call, Err, Text: the function ends, with an error, or as Text says
	CtxEnded  Kind = "ctx ended" // Hold, Err: the ctx of a function, with its cause
	Exited    Kind = "exited"    // Call, Text: the call has not returned, since its function panicked or exited
	Calm      Kind = "calm"      // the last fault has ended
	Seen      Kind = "seen"      // Places, Text, Owner: a token in Redis
	Hooked    Kind = "hooked"    // Owner, Text, Places, Report: the hook of a Locker that was called, with what
	Answered  Kind = "answered"  // Call, Status: what Inspect has answered
	Queued    Kind = "queued"    // Places, Owner, For: how many entries of an owner the queue has
	Used      Kind = "used"      // Places, Owner, Sent, For, Text: see server.Use
	Idle      Kind = "idle"      // For: how many commands were sent in a day in which nobody asked for anything
	Left      Kind = "left"      // Text: what is in Redis at the end
)

// An Event is what was seen at an instant.
type Event struct {
	At     time.Duration // since the world began
	Kind   Kind
	Call   int // the number of a call, from 1
	Hold   int // the number of a lock, from 1
	Of     int // the lock that was adopted
	Ask    *Ask
	Ends   time.Duration // when the ctx of a call ends
	Places []string
	Owner  string
	Fence  uint64
	Until  time.Duration
	For    time.Duration
	Gone   bool // Redis has no such token
	Err    error
	Text   string
	Report *redlatch.Event
	Status *redlatch.Status
	Sent   map[string]int // commands, by the first words of their scripts
}

func (e Event) String() string {
	text := fmt.Sprintf("%12v %s", e.At, e.Kind)
	add := func(is bool, format string, args ...any) {
		if is {
			text += " " + fmt.Sprintf(format, args...)
		}
	}
	add(e.Call > 0, "call %d", e.Call)
	add(e.Hold > 0, "lock %d", e.Hold)
	add(e.Of > 0, "of lock %d", e.Of)
	if a := e.Ask; a != nil {
		add(true, "op %d %s %q by %s", a.Op, a.What, a.Places, a.Owner)
		add(a.Mode == Permit, "limit %d", a.Limit)
		add(a.Hold > 0, "of lock %d", a.Hold)
		add(e.Ends != Never, "until %v", e.Ends)
	}
	add(len(e.Places) > 0, "%q", e.Places)
	add(e.Fence > 0, "fence %d", e.Fence)
	add(e.Until > 0, "until %v", e.Until)
	add(e.For > 0, "for %v", e.For)
	add(e.Gone, "gone in Redis")
	add(e.Err != nil, "%v", e.Err)
	add(e.Owner != "", "%s", e.Owner)
	add(e.Text != "", "%s", e.Text)
	if r := e.Report; r != nil {
		add(true, "fence %d, %d attempts, %v, %v: %v", r.Fence, r.Attempts, r.Elapsed, r.Took, r.Err)
	}
	add(e.Status != nil, "%+v", e.Status)
	add(e.Sent != nil, "%v", e.Sent)
	return text
}
