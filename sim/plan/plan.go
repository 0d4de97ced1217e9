// Package plan draws from a seed what happens in a simulated world, whole before the world begins.
//
// Each operation and each fault has random numbers of its own. So some can be left out, and the
// others stay as they are.
package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Plan is all that happens in a world.
type Plan struct {
	Theme     string
	Seed      uint64
	Length    time.Duration // when the last fault has ended, and no operation begins any more
	Servers   int
	Processes []Process
	Groups    []Group
	Lockers   []Locker
	Ops       []Op
	Faults    []Fault
}

// A Process has a client for each server.
type Process struct {
	Delay, Jitter time.Duration // of its roads, each way
	Retries       int           // MaxRetries of its clients
	Cluster       bool          // its clients are those of a Redis Cluster of one server
}

// A Kind is a kind of Locker.
type Kind string

// The kinds.
const (
	SetNXPX     Kind = "setnxpx"
	LegacySetNX Kind = "legacysetnx"
	Semaphore   Kind = "semaphore"
	ReadWrite   Kind = "readwrite"
	Redlock     Kind = "redlock"
	Migration   Kind = "migration" // from LegacySetNX or SetNXPX to SetNXPX or Redlock
)

// A Group has Lockers that exclude each other, and their keys. It has a key prefix of its own.
type Group struct {
	Kind    Kind
	Keys    []string
	Servers []int // of its locks: several with Redlock
	From    Kind  // of a migration
	To      Kind
}

// A Locker is one of a process. The Lockers of readers and writers are two.
type Locker struct {
	Process, Group int
	Write          bool
	Limit          int   // of a semaphore
	Stage          Stage // of a migration
	Options
}

// A Stage of a migration.
type Stage string

// The stages. The first and the last are never in one world.
const (
	Old  Stage = "old"
	Both Stage = "both"
	New  Stage = "new"
)

// Options are those of a Locker, or of a call. Zero stands for the default.
type Options struct {
	TTL               time.Duration
	Fixed             bool // WithoutRenewal
	Polls             bool // WithoutQueue
	MaxHold, MinHold  time.Duration
	Grace, MaxWait    time.Duration
	OpTimeout         time.Duration
	Shortest, Longest time.Duration // of WithPollInterval
	Replicas          time.Duration // of WithReplicas, for one
}

// Timeout is how long a command may take.
func (o Options) Timeout() time.Duration {
	if o.OpTimeout > 0 {
		return o.OpTimeout + o.Replicas
	}
	return min(max(o.TTL/10, 50*time.Millisecond), time.Second) + o.Replicas
}

// A Call is a function of the library.
type Call string

// The calls.
const (
	Lock     Call = "Lock"
	TryLock  Call = "TryLock"
	Do       Call = "Do"
	TryDo    Call = "TryDo"
	DoAll    Call = "DoAll"
	TryDoAll Call = "TryDoAll"
	Lead     Call = "Lead"
	Inspect  Call = "Inspect"
	Forget   Call = "Forget"
)

// asks reports whether a call asks for a lock.
func (c Call) asks() bool { return c != Inspect && c != Forget }

// An Op is a call, with what its caller does under the lock.
type Op struct {
	Number   int // in the plan as it was drawn
	At       time.Duration
	Locker   int
	Call     Call
	Keys     []string
	Own      *Options      // of the call; nil: those of the Locker
	Limit    int           // of the call; 0: that of the Locker
	Patience time.Duration // after which the ctx ends
	Cancels  bool          // the ctx is canceled, and has no deadline
	Watches  bool          // Done
	Heeds    bool          // gives the lock back as soon as it has ended
	Steps    []Step
	Ending   Ending // of the function that runs under the lock
}

// Runs reports whether a call runs a function under its locks.
func (c Call) Runs() bool {
	switch c {
	case Do, TryDo, DoAll, TryDoAll, Lead:
		return true
	case Lock, TryLock, Inspect, Forget:
	}
	return false
}

// An Ending is how a function ends that runs under a lock.
type Ending string

// The endings.
const (
	Succeeds Ending = ""
	Fails    Ending = "fails"   // with an error of its own
	Stops    Ending = "stops"   // with ErrStop
	Panics   Ending = "panics"  //
	Exits    Ending = "exits"   // runtime.Goexit
	Unlocks  Ending = "unlocks" // by itself, and succeeds
)

// A Step is what a caller does under a lock, after a pause.
type Step struct {
	After    time.Duration
	Act      Act
	For      time.Duration // of Extend and UnlockAfter
	Locker   int           // of Adopt
	Patience time.Duration // of the ctx of Extend and Adopt; 0: that of the world
}

// An Act is what a step does.
type Act string

// The acts. A function that runs under a lock ends with its last step.
const (
	Check       Act = "check"
	Extend      Act = "extend"
	Share       Act = "share" // reads the token
	Adopt       Act = "adopt" // by another Locker, which unlocks after For
	Unlock      Act = "unlock"
	UnlockTwice Act = "unlock twice" // at once
	UnlockAfter Act = "unlock after"
	Abandon     Act = "abandon" // never unlocks
)

// A Fault is trouble for a time.
type Fault struct {
	Number  int
	At, For time.Duration
	What    Trouble
	Process int // whose road it is; −1: all
	Server  int
	N       int
	D       time.Duration
	Rate    float64
	A, B    bool
	Text    string
}

// A Trouble is a kind of fault.
type Trouble string

// The troubles of a road, and of a server.
const (
	Slow      Trouble = "slow"               // by D
	SlowDials Trouble = "slow dials"         // by D
	Refuse    Trouble = "refused dials"      //
	Reset     Trouble = "reset"              // what is under way is lost if A
	Requests  Trouble = "lost requests"      // N of them; silently if A
	Replies   Trouble = "lost replies"       // N of them; silently if A
	Hole      Trouble = "hole"               // its connections are closed then if A
	HalfOpen  Trouble = "half-open"          // as a hole of connections that are open; replies only if B, else requests
	Deaf      Trouble = "deaf subscriptions" //
	Close     Trouble = "closed"             // the clients of the process, for ever
	Freeze    Trouble = "frozen"             // a hole on all roads of the process

	Stop      Trouble = "stopped"    // what was sent meanwhile is carried out then
	Restart   Trouble = "restart"    // data is lost if A
	Says      Trouble = "answers"    // Text to N, a kind of commands
	Alone     Trouble = "no replica" // confirms anything
	Mute      Trouble = "muted"      // messages are lost
	ClockStep Trouble = "clock step" // by D
	ClockRate Trouble = "clock rate" // Rate
	Flush     Trouble = "FLUSHALL"   //
	Delete    Trouble = "deleted"    // Text, a key
	Return    Trouble = "return"     // to the data of D ago, as a failover does that loses writes
)

// Loses reports whether a server loses a lock, or its clock jumps forward.
func (p *Plan) Loses() bool { return slices.ContainsFunc(p.Faults, Fault.Loses) }

// Loses reports whether a server loses a lock by the fault, or its clock jumps forward.
func (f Fault) Loses() bool {
	switch f.What {
	case Flush, Delete, Return:
		return true
	case Restart:
		return f.A
	case ClockStep:
		return f.D > 0
	}
	return false
}

// Closed returns when the clients of a process are closed; 0: never.
func (p *Plan) Closed(process int) time.Duration {
	i := slices.IndexFunc(p.Faults, func(f Fault) bool { return f.What == Close && f.Process == process })
	if i < 0 {
		return 0
	}
	return p.Faults[i].At // they are in this order
}

// Back returns by how much the clocks of servers are set back, in sum.
func (p *Plan) Back() (sum time.Duration) {
	for _, f := range p.Faults {
		if f.What == ClockStep && f.D < 0 {
			sum -= f.D
		}
	}
	return sum
}

func (p *Plan) String() string {
	var b strings.Builder
	for i, x := range p.Processes {
		fmt.Fprintf(&b, "process %d: %+v\n", i, x)
	}
	for i, g := range p.Groups {
		fmt.Fprintf(&b, "group %d: %+v\n", i, g)
	}
	for i, l := range p.Lockers {
		fmt.Fprintf(&b, "locker %d: %+v\n", i, l)
	}
	for _, f := range p.Faults {
		fmt.Fprintln(&b, f)
	}
	for _, o := range p.Ops {
		fmt.Fprintln(&b, o)
	}
	return b.String()
}

func (o Op) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%v op %d: locker %d %s %q for %v", o.At, o.Number, o.Locker, o.Call, o.Keys, o.Patience)
	if o.Own != nil {
		fmt.Fprintf(&text, " %+v", *o.Own)
	}
	if o.Limit > 0 {
		fmt.Fprintf(&text, " limit %d", o.Limit)
	}
	if o.Ending != Succeeds {
		fmt.Fprintf(&text, " %s", o.Ending)
	}
	for _, s := range o.Steps {
		fmt.Fprintf(&text, ", %v %s", s.After, s.Act)
		if s.For > 0 {
			fmt.Fprintf(&text, "(%v)", s.For)
		}
	}
	return text.String()
}

func (f Fault) String() string {
	return fmt.Sprintf("%v fault %d: %s for %v, process %d, server %d, %d %v %v %v %v %q",
		f.At, f.Number, f.What, f.For, f.Process, f.Server, f.N, f.D, f.Rate, f.A, f.B, f.Text)
}
