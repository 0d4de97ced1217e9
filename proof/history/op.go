// Package history records what happened to locks and judges it.
//
// A history is a list of operations, each with the interval in which it took effect. It is judged
// by porcupine: is there an order of the operations, each at an instant of its interval, that the
// rules of a lock allow?
package history

import "fmt"

// Kind is what an operation does.
type Kind string

const (
	// Grant makes Token the owner of Key, with Fence. A grant of unknown outcome is left out, if
	// nobody uses it: had it happened, it would only have kept others out.
	Grant Kind = "grant"
	// Use says that the owner believed in its lock.
	Use Kind = "use"
	// Release ends the ownership. An unknown Release may have done so, or may do so at any later
	// time.
	Release Kind = "release"
	// Loss says that the handle reported to the owner that it lost the lock.
	Loss Kind = "loss"
	// end is the end of a lease that nobody surely released. [Check] adds it: no client sees it
	// happen.
	end Kind = "end"
)

// An Op is one operation. Its times are nanoseconds on one clock. The operations of a token are
// recorded in their order.
type Op struct {
	Kind         Kind
	Worker       int // who did it; only the picture shows it
	Key, Token   string
	Fence        uint64 // of a Grant
	Writes       bool   // of a Grant, if Rules.Writers: it excludes all others
	Call, Return int64
	Until        int64  // the end of the lease as the owner knew it after the operation
	Unknown      bool   // the outcome is unknown
	Passed       bool   // a Release passed the lock on within its process; only summaries show it
	Note         string // why a Loss was reported; only the picture shows it

	turn int // of a Grant: its place in the order of the grants, from 1. If Rules.Writers, how many writers were granted by then
}

// late reports whether the operation may have taken effect only after the lease had ended.
func (op Op) late() bool { return op.Return >= op.Until }

// String is what the picture shows.
func (op Op) String() string {
	text := fmt.Sprintf("%s %s", op.Kind, op.Token)
	if op.Kind == Grant {
		text += fmt.Sprintf(" fence %d", op.Fence)
	}
	return text + " " + op.Note
}
