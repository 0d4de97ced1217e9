package redlatch

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/node"
)

// What a caller can do next decides which error it gets. Each is matched with [errors.Is]: the
// errors that are returned carry the operation, the key and the cause on one line.
var (
	// ErrNotAcquired says that another owner has the key, or on a quorum that several tried at once
	// and none of them got it: wait, or do something else. A [HeldError] says what is known of that owner.
	// At the end of a wait the error matches the context's error too.
	ErrNotAcquired error = &sentinel{text: "held by another owner"}

	// ErrUnavailable says that Redis is the reason, and not another owner: it did not answer, could not be
	// reached, or answered that it cannot serve anybody now. Try again later. The outcome of what failed so
	// is unknown, unless the error matches another of these too.
	ErrUnavailable error = &sentinel{text: "Redis is unavailable"}

	// ErrLost says that the lock ended before it was released: it expired, was deleted, was taken
	// by someone else, or Redis stayed out of reach. The text says which. What the lock protected may have
	// been touched.
	ErrLost error = &sentinel{text: "lock lost"}

	// ErrMaxHold says that the lock ended because of [WithMaxHold]. It matches ErrLost too.
	ErrMaxHold error = &sentinel{text: "lock lost: held for as long as WithMaxHold allows", is: ErrLost}

	// ErrReleased says that this handle was unlocked before.
	ErrReleased error = &sentinel{text: "lock already released"}

	// ErrNoQuorum says that too few nodes answered to tell. What an attempt to lock took is given
	// back, unless [WithToken] chose its token; the outcome of an Adopt, Extend or Unlock is unknown. It
	// matches ErrUnavailable too.
	ErrNoQuorum error = &sentinel{text: "no quorum of the nodes answered", is: ErrUnavailable}

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
	return &opError{op: op, key: key, err: marked(err)}
}

// outage is an error that matches ErrUnavailable.
type outage struct{ error }

func (e outage) Unwrap() []error { return []error{ErrUnavailable, e.error} }

// marked has err match ErrUnavailable where Redis is the reason for it.
func marked(err error) error {
	if node.Unavailable(err) && !errors.Is(err, ErrUnavailable) {
		return outage{err}
	}
	return err
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

// gaveUp is the error of a wait that ctx ended. last is what the last attempt met with; nil: nothing was sent. It
// matches ctx's error, last, and ErrNotAcquired or ErrUnavailable.
type gaveUp struct{ ctx, last error }

func (e *gaveUp) Error() string {
	if e.last == nil {
		return "gave up waiting: " + e.ctx.Error()
	}
	return "gave up waiting: " + e.ctx.Error() + ": the last attempt: " + line(e.last)
}

func (e *gaveUp) Unwrap() []error {
	switch {
	case e.last == nil:
		return []error{ErrNotAcquired, e.ctx}
	case errors.Is(e.last, ErrNotAcquired):
		return []error{e.last, e.ctx}
	}
	return []error{ErrUnavailable, e.ctx, e.last}
}

// errUnanswered is what an attempt met with that ctx has ended before Redis answered.
var errUnanswered = errors.New("no reply until then")

// gaveUp returns the error of a wait that ctx ended, together with an attempt that was made at asked and failed
// with err. Where that has only just been sent, the attempt before it tells more.
func (e *engine) gaveUp(ctx context.Context, r *request, asked instant, err error) error {
	var cut *node.CutShort
	switch {
	case errors.As(err, &cut):
		r.last = cut.Trouble
	case errors.Is(err, ErrNotAcquired):
		r.last = err
	case errors.As(err, new(*node.NotDone)) && !errors.Is(err, errUnanswered):
	case r.last == nil, e.now().since(asked) > r.cfg.timeout()/4:
		r.last = errUnanswered
	}
	return &gaveUp{node.CtxError(ctx), r.last}
}

// A HeldError says who has the key, as far as Redis told. It matches [ErrNotAcquired]: find it with [errors.As].
type HeldError struct {
	Owner string        // what the holder's WithOwner said; empty where it said nothing
	TTL   time.Duration // what was left of the holder's lease, which may be renewed; 0 where that is not known

	err error // ErrNotAcquired, or what each node of a quorum said
}

func (e *HeldError) Error() string {
	text := "held by another owner"
	if e.Owner != "" {
		text = fmt.Sprintf("held by %q", e.Owner)
	}
	var q *QuorumError
	if errors.As(e.err, &q) {
		text += ": " + q.answers()
	}
	return text
}

// Unwrap returns ErrNotAcquired, or a [QuorumError] that matches it.
func (e *HeldError) Unwrap() error { return e.err }

// heldBy adds to a refusal what is known of the holder.
func heldBy(got acquireReply, err error) error {
	if !errors.Is(err, ErrNotAcquired) || got.holder == "" && got.left == 0 {
		return err
	}
	return &HeldError{Owner: ownerOf(got.holder), TTL: got.left, err: err}
}

// permanent reports whether waiting cannot fix err.
func permanent(err error) bool {
	return errors.Is(err, node.ErrOtherData) || errors.Is(err, ErrInvalidOption) || errors.Is(err, errors.ErrUnsupported)
}

// QuorumError says what each node answered to an operation that a quorum of them had to carry out
// and did not. It matches ErrNotAcquired, ErrLost or ErrNoQuorum.
type QuorumError struct {
	Op, Key string // acquire, extend, release, inspect or raise (a fence counter); the key with its prefix
	Need    int    // how many nodes had to carry it out
	// Nodes holds an answer by node, in the order of the clients: nil for done; ErrNotAcquired for
	// held by another; ErrLost for not held by the lock's token; else why it did not answer.
	Nodes []error

	names []string // of the nodes
	err   error
}

func (e *QuorumError) Error() string { return line(e.err) + ": " + e.answers() }

// answers says what each node answered.
func (e *QuorumError) answers() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %q needs %d of %d nodes", e.Op, e.Key, e.Need, len(e.Nodes))
	for i, err := range e.Nodes {
		answer := "done"
		if err != nil {
			answer = line(err)
		}
		fmt.Fprintf(&b, "; %s: %s", e.names[i], answer)
	}
	return b.String()
}

// Unwrap returns the sentinel that the error matches. The nodes' own errors it does not match: one
// node's ErrNotAcquired is not the lock's.
func (e *QuorumError) Unwrap() error { return e.err }
