package redlatch

import (
	"errors"
	"fmt"
	"strings"

	"github.com/redlatch/redlatch/internal/node"
)

// What a caller can do next decides which error it gets. Each is matched with [errors.Is]: the
// errors that are returned carry the operation, the key and the cause on one line.
var (
	// ErrNotAcquired says that another owner has the key, or on a quorum that several tried at once
	// and none of them got it: wait, or do something else. At the end
	// of a wait the error matches the context's error too; where the context ended before Redis told,
	// nobody knows who has the key.
	ErrNotAcquired error = &sentinel{text: "held by another owner"}

	// ErrLost says that the lock ended before it was released: it expired, was deleted, was taken
	// by someone else, or Redis stayed out of reach. What it protected may have been touched.
	ErrLost error = &sentinel{text: "lock lost"}

	// ErrMaxHold says that the lock ended because of [WithMaxHold]. It matches ErrLost too.
	ErrMaxHold error = &sentinel{text: "lock lost: held for as long as WithMaxHold allows", is: ErrLost}

	// ErrReleased says that this handle was unlocked before.
	ErrReleased error = &sentinel{text: "lock already released"}

	// ErrNoQuorum says that too few nodes answered to tell. What an attempt to lock took is given
	// back, unless [WithToken] chose its token; the outcome of an Adopt, Extend or Unlock is unknown.
	ErrNoQuorum error = &sentinel{text: "no quorum of the nodes answered"}

	// ErrNotReplicated says that too few replicas confirmed a grant, see [WithReplicas]. It is given
	// back, unless [WithToken] chose its token; a lock that was to be adopted stays with its holder.
	ErrNotReplicated error = &sentinel{text: "not replicated"}

	// ErrInvalidOption says that an option, a key or a client cannot work. It was found before
	// anything was sent, but for what [NewRedlock] and [NewMigration] find out at the first call.
	ErrInvalidOption error = &sentinel{text: "invalid option"}
)

const prefix = "redlatch: "

// sentinel is an error that callers compare with. It may stand for a second one.
type sentinel struct {
	text string
	is   error
}

func (s *sentinel) Error() string { return prefix + s.text }

func (s *sentinel) Is(target error) bool { return s.is != nil && target == s.is }

// opError is what leaves the package: the operation, the key and the cause, on one line.
type opError struct {
	op, key string
	err     error
}

func (e *opError) Error() string {
	if e.key == "" {
		return prefix + e.op + ": " + line(e.err)
	}
	return fmt.Sprintf("%s%s %q: %s", prefix, e.op, e.key, line(e.err))
}

func (e *opError) Unwrap() error { return e.err }

// wrap adds op and key to err at the exported edge, once.
func wrap(op, key string, err error) error {
	if err == nil {
		return nil
	}
	return &opError{op: op, key: key, err: err}
}

var breaks = strings.NewReplacer("\r\n", " ", "\n", " ")

// line prints err without the package's name and without line breaks.
func line(err error) string {
	return breaks.Replace(strings.TrimPrefix(err.Error(), prefix))
}

// invalid returns an ErrInvalidOption that says what is wrong.
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrInvalidOption, fmt.Errorf(format, args...))
}

// gaveUp is the error of a wait that ctx ended. It matches ErrNotAcquired, ctx's error and the
// trouble that the last attempt had, if it had any.
type gaveUp struct{ ctx, trouble error }

func (e *gaveUp) Error() string {
	if e.trouble == nil {
		return "gave up waiting: " + e.ctx.Error()
	}
	return "gave up waiting: " + e.ctx.Error() + ": the last attempt: " + e.trouble.Error()
}

func (e *gaveUp) Unwrap() []error {
	if e.trouble == nil {
		return []error{ErrNotAcquired, e.ctx}
	}
	return []error{ErrNotAcquired, e.ctx, e.trouble}
}

// permanent reports whether waiting cannot fix err.
func permanent(err error) bool {
	return errors.Is(err, node.ErrOtherData) || errors.Is(err, ErrInvalidOption)
}

// QuorumError says what each node answered to an operation that a quorum of them had to carry out
// and did not. It matches ErrNotAcquired, ErrLost or ErrNoQuorum.
type QuorumError struct {
	Op, Key string // acquire, extend, release, inspect or raise (a fence counter); the key with its prefix
	Need    int    // how many nodes had to carry it out
	// Nodes holds an answer by node, in the order of the clients: nil for done; ErrNotAcquired for
	// held by another; ErrLost for not held by the lock's token; else why it did not answer.
	Nodes []error

	err error
}

func (e *QuorumError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s %q needs %d of %d nodes", line(e.err), e.Op, e.Key, e.Need, len(e.Nodes))
	for i, err := range e.Nodes {
		answer := "done"
		if err != nil {
			answer = line(err)
		}
		fmt.Fprintf(&b, "; node %d: %s", i, answer)
	}
	return b.String()
}

// Unwrap returns the sentinel that the error matches. The nodes' own errors it does not match: one
// node's ErrNotAcquired is not the lock's.
func (e *QuorumError) Unwrap() error { return e.err }
