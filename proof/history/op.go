// Package history records what happened to locks and judges it.
//
// A history is a list of operations, each with the interval in which it took effect. It is judged by
// porcupine: is there an order of the operations, each at an instant of its interval, that the rules of
// a lock allow?
package history

import (
	"fmt"
	"math"
)

// Kind is what an operation does.
type Kind string

const (
	// Grant makes Token the owner of Key, with Fence. An unknown Grant may have done so.
	Grant Kind = "grant"
	// Adopt gives the owner another handle on Key, with Fence and with a lease of its own.
	Adopt Kind = "adopt"
	// Use says that the owner believed in its lock.
	Use Kind = "use"
	// Release ends the ownership. An unknown Release may have done so.
	Release Kind = "release"
	// Loss says that the handle reported to the owner that it lost the lock.
	Loss Kind = "loss"
	// End is the end of a lease that nobody released. [Check] adds it: no client sees it happen.
	End Kind = "end"
)

// Never is the Return of an operation that may take effect at any later time.
const Never = math.MaxInt64

// An Op is one operation. Its times are nanoseconds on one clock.
type Op struct {
	Kind         Kind
	Worker       int // who did it; only the picture shows it
	Key, Token   string
	Fence        uint64 // of a Grant or an Adopt
	Call, Return int64
	// Until is the end of the lease as the owner knew it after the operation.
	Until int64
	// Kept is when others may own the key again after a Release. Until then nobody owns it. 0: at once.
	Kept    int64
	Unknown bool   // the outcome is unknown
	Note    string // why a Loss was reported; only the picture shows it
	Passed  bool   // a Release passed the lock on within its process; only summaries show it
	// Blurred says that the owner's clock is not that of the times: Until says nothing, and the lease
	// may end at any time.
	Blurred bool

	after uint64 // of a known Grant or Adopt: the fence that comes before its own
	turn  int    // of a known Grant: its place in the order of the returns, from 1
}

// late reports whether the operation may have taken effect only after the lease had ended.
func (op Op) late() bool { return op.Blurred || op.Return >= op.Until }

// mints reports whether the operation got a fence.
func (op Op) mints() bool { return (op.Kind == Grant || op.Kind == Adopt) && !op.Unknown }

// keeps reports whether the operation keeps others out after a release.
func (op Op) keeps() bool { return op.Kind == Release && op.Kept > op.Call }

// describe is what the picture shows.
func (op Op) describe() string {
	text := fmt.Sprintf("%s %.8s", op.Kind, op.Token)
	if op.Fence != 0 && op.mints() {
		text += fmt.Sprintf(" fence %d", op.Fence)
	}
	if op.Unknown {
		text += " ?"
	}
	if op.Note != "" {
		text += ": " + op.Note
	}
	return text
}
