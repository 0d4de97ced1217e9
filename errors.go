package redlatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/rediserr"
	"github.com/redlatch/redlatch/internal/wire"
)

// Each of these errors stands for one thing that a caller can do next. Match them with [errors.Is]:
// the errors that are returned add the operation, the key and the cause, on one line.
var (
	// ErrNotAcquired says that another owner has the key, as Redis answered or as this Locker knows.
	// The owner holds it, or keeps others out with [Lock.UnlockAfter] or [WithMinHold]. On a quorum,
	// concurrent attempts can also split the nodes so that none is granted. Wait, or do something else.
	// A [HeldError] describes the owner if it is known. If ctx ended a wait, the error also matches
	// ctx.Err().
	ErrNotAcquired error = &sentinel{text: "held by another owner"}

	// ErrUnavailable says that Redis is the reason, and not another owner. Redis did not answer, could
	// not be reached, or returned an error that is not a known mistake of the caller. Errors of
	// proxies, of the client and of its hooks also match. Try again later. The outcome of the operation
	// is unknown, unless the error also matches another of these variables. The error matches
	// [context.DeadlineExceeded] or [context.Canceled] only if the ctx of the call has ended.
	ErrUnavailable error = &sentinel{text: "Redis is unavailable"}

	// ErrLost says that the lock ended before it was released. It expired, was deleted, was evicted
	// by the maxmemory-policy of Redis, or was taken by another owner, or Redis could not be
	// reached in time. The text says which, as far as that is known. Others may have changed the
	// protected resource. [Locker.Lock] and [Locker.TryLock] also return ErrLost if the grant arrived
	// too late, and [Locker.Adopt] if its reply did, or if the token does not hold the key.
	ErrLost = lease.ErrLost

	// ErrMaxHold says that the lock ended because of [WithMaxHold]. It also matches [ErrLost].
	ErrMaxHold = lease.ErrMaxHold

	// ErrReleased says that this handle was already unlocked.
	ErrReleased = lease.ErrReleased

	// ErrNoQuorum says that too few nodes answered to decide. A node that returns an error has not
	// answered, even if the error is permanent, such as WRONGTYPE. [QuorumError.Nodes] has the errors.
	// redlatch releases a failed attempt to acquire. The outcome of an Adopt, Extend or Unlock is
	// unknown. ErrNoQuorum also matches [ErrUnavailable].
	ErrNoQuorum error = &sentinel{text: "no quorum of the nodes answered", is: ErrUnavailable}

	// ErrNotReplicated says that too few replicas confirmed a grant, see [WithReplicas]. The grant
	// is released. If Adopt fails with it, the lock is not released.
	ErrNotReplicated error = &sentinel{text: "not replicated"}

	// ErrInvalid says that an option, a key, a client, a ctx or fn is invalid, or that a call would wait
	// for a lock that its own ctx holds. It is returned before anything is sent. But [DoAll] and
	// [TryDoAll] find a key that the Locker refuses only when they come to it, and then release the
	// locks on the keys before it.
	ErrInvalid error = &sentinel{text: "invalid argument"}

	// ErrStop ends [Lead] without an error: fn returns it, or an error that wraps it.
	ErrStop error = &sentinel{text: "stop leading"}
)

const prefix = rediserr.Prefix

// sentinel is an error to match. If is is set, it matches that error too.
type sentinel struct {
	text string
	is   error
}

func (s *sentinel) Error() string { return prefix + s.text }

func (s *sentinel) Is(target error) bool { return s.is != nil && target == s.is }

// An Error is what every function and method of this package returns as its error, except for an
// error of fn, see [FuncError], and for Err of a [Lock]. Its text is one line.
type Error struct {
	Op  string // what failed, such as "lock", "try do all" or "unlock"
	Key string // as the caller named it. Of several keys, the one that the error is about; empty: of none
	Err error  // why
}

func (e *Error) Error() string {
	if e.Key == "" {
		return prefix + e.Op + ": " + rediserr.Text(e.Err)
	}
	return fmt.Sprintf("%s%s %q: %s", prefix, e.Op, e.Key, rediserr.Text(e.Err))
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// wrap adds op and key to err at the exported edge. They replace those of a call that op has made
// for key.
func wrap(op, key string, err error) error {
	if err == nil {
		return nil
	}
	if inner, ok := err.(*Error); ok && inner.Key == key { //nolint:errorlint // one that another error wraps stays
		err = inner.Err
	}
	return &Error{Op: op, Key: key, Err: asOutage(err)}
}

// outage makes an error match ErrUnavailable.
type outage struct{ error }

func (e outage) Unwrap() []error { return []error{ErrUnavailable, e.error} }

// asOutage makes err match ErrUnavailable if Redis is the reason for it.
func asOutage(err error) error {
	if rediserr.Unavailable(err) && !errors.Is(err, ErrUnavailable) {
		return outage{err}
	}
	return err
}

// invalid returns an ErrInvalid that says what is wrong.
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrInvalid, fmt.Errorf(format, args...))
}

// saysEnd reports whether err already says that ctx has ended.
func saysEnd(ctx context.Context, err error) bool {
	end := ctx.Err()
	if end == nil || !errors.Is(err, end) {
		return false
	}
	cause := context.Cause(ctx)
	return errors.Is(err, cause) || !errors.Is(ctxError(ctx), cause)
}

// gaveUp is the error of a call that ctx or WithMaxWait ended. last is the outcome of the last
// attempt; nil: nothing was sent. gaveUp matches ctx's error and last. It matches ErrNotAcquired if
// last does, and ErrUnavailable otherwise.
type gaveUp struct{ ctx, last error }

func (e *gaveUp) Error() string {
	text := "gave up waiting: " + e.ctx.Error()
	if waited, ok := e.ctx.(*waitedError); ok { //nolint:errorlint // ctxError does not wrap it
		text = waited.Error()
	}
	if e.last == nil {
		return text + ": nothing was sent"
	}
	return text + ": the last attempt: " + rediserr.Text(e.last)
}

// A waitedError is the cause of the end of a wait that WithMaxWait bounds. It takes the place of the
// error of ctx, which has not ended.
type waitedError struct{ d time.Duration }

func (e *waitedError) Error() string { return "waited " + e.d.String() }

func (e *gaveUp) Unwrap() []error {
	switch {
	case e.last == nil:
		return []error{ErrUnavailable, e.ctx}
	case errors.Is(e.last, ErrNotAcquired):
		return []error{e.last, e.ctx}
	}
	return []error{ErrUnavailable, e.ctx, e.last}
}

// ctxError returns the error of ctx, with its cause if that differs. It does not match a cause that
// this package returned, which is about another lock.
func ctxError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	own := []error{ErrNotAcquired, ErrUnavailable, ErrLost, ErrReleased, ErrNotReplicated, ErrInvalid}
	if waited, ok := cause.(*waitedError); ok { //nolint:errorlint // nobody wraps it
		return waited
	}
	switch {
	case errors.Is(cause, err):
		return err
	case errors.As(cause, new(*FuncError)),
		slices.ContainsFunc(own, func(target error) bool { return errors.Is(cause, target) }):
		return fmt.Errorf("%w: %s", err, rediserr.Text(cause))
	}
	return &endedError{err, cause}
}

// endedError is the error of a ctx that has ended, with its cause. It matches the cause and does not unwrap to
// it: an answer of Redis there, such as to another goroutine of a group, is not about this call.
type endedError struct{ ctx, cause error }

func (e *endedError) Error() string        { return e.ctx.Error() + ": " + e.cause.Error() }
func (e *endedError) Unwrap() error        { return e.ctx }
func (e *endedError) Is(target error) bool { return errors.Is(e.cause, target) }
func (e *endedError) As(target any) bool   { return errors.As(e.cause, target) }

// A HeldError describes the owner of a key: as Redis last answered this process, or if the owner is
// this process, as it was at the call. It matches [ErrNotAcquired], even if a test made it. Find it
// with [errors.As].
type HeldError struct {
	Key string // as the caller named it
	// Owner names the holder, see [WithOwner]. It is empty if the holder has none, or is a client of
	// another library. With [NewLegacySetNX] it is also empty, unless the lock of a Lock call keeps another
	// Lock call of its Locker waiting. [Locker.Inspect] shows the owner there.
	Owner string
	// Since is when the holder began to ask for the lock, as in [Status]. It is zero if it is unknown.
	Since time.Time
	// TTL is what was left of the holder's lease, which may be renewed; 0 if it is unknown. If there
	// are several permits, it is from the one that ends first, or, if a writer was refused, from the
	// one that ends last. That can be a permit in its min hold. For a call that waits with a limit below
	// the number of holders, it is the time until enough of them can have ended.
	TTL time.Duration
	// Kept is set if nobody holds the key, but [Lock.UnlockAfter] or [WithMinHold] keeps others out.
	Kept bool

	ours bool  // the owner is a caller of the same line
	err  error // a QuorumError that matches ErrNotAcquired; nil: there is none
}

func (e *HeldError) Error() string {
	text := "held by another owner"
	switch {
	case e.Kept:
		if text = "nobody holds it, but a min hold keeps others out"; e.TTL > 0 {
			text += fmt.Sprintf(" for another %v", e.TTL.Round(time.Millisecond))
		}
	case e.Owner != "" && e.ours:
		text = fmt.Sprintf("held by %q, a caller of this Locker", e.Owner)
	case e.Owner != "":
		text = fmt.Sprintf("held by %q", e.Owner)
	case e.ours:
		text = "held by another caller of this Locker"
	}
	var q *QuorumError
	if errors.As(e.err, &q) {
		text += ": " + q.answers()
	}
	return text
}

// Unwrap returns [ErrNotAcquired], or a [QuorumError] that matches it.
func (e *HeldError) Unwrap() error { return cmp.Or(e.err, ErrNotAcquired) }

// heldBy returns the error of a reply to an acquire of key, with the known facts about the holder.
func heldBy(key string, got reply) error {
	if !errors.Is(got.err, ErrNotAcquired) || errors.Is(got.err, errSplit) || got.holder == "" && got.left == 0 {
		return got.err
	}
	h := wire.Parse(got.holder)
	return &HeldError{Key: key, Owner: h.Owner, Since: h.MadeAt, TTL: got.left, Kept: h.Kept, err: got.err}
}

// permanent reports whether retrying cannot fix err. A client that was closed stays closed, for
// example. For a quorum, so many nodes have such an error that the others are none.
func permanent(err error) bool {
	var q *QuorumError
	if errors.As(err, &q) {
		return len(slices.DeleteFunc(slices.Clone(q.Nodes), permanent)) < q.Need
	}
	return slices.ContainsFunc(unfixable, func(target error) bool { return errors.Is(err, target) })
}

// opensFirst reports whether an attempt failed only since the first connection, or with a quorum those
// of some nodes, took longer than the attempt.
func opensFirst(err error) bool {
	var q *QuorumError
	if errors.As(err, &q) {
		first, rest := 0, 0
		for _, node := range q.Nodes {
			switch {
			case node == nil:
				rest++
			case opensFirst(node):
				first++
			}
		}
		return first > 0 && first+rest >= q.Need
	}
	var silence *rediserr.NoReply
	return errors.As(err, &silence) && silence.First
}

var unfixable = []error{
	rediserr.ErrOtherData, rediserr.ErrBadScript, ErrInvalid, errors.ErrUnsupported, redis.ErrClosed,
}

// A QuorumError says what each node answered to an operation that needed a quorum and did not get
// one. It matches [ErrNotAcquired], [ErrLost] or [ErrNoQuorum].
type QuorumError struct {
	Op, Key string // acquire, extend, adopt, release or inspect; the key as the caller named it
	Need    int    // how many nodes had to do it
	// Nodes has one answer for each client, in the order of the clients. nil means done,
	// [ErrNotAcquired] held by another owner, and [ErrLost] not held by the lock's token. Any other
	// error is the reason why the node did not answer.
	Nodes []error

	names []string // of the nodes
	err   error
}

func (e *QuorumError) Error() string {
	return e.Unwrap().Error() + ": " + e.answers()
}

func (e *QuorumError) answers() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %q needs %d of %d nodes", e.Op, e.Key, e.Need, len(e.Nodes))
	for i, err := range e.Nodes {
		name, answer := fmt.Sprint("node ", i), "done"
		if i < len(e.names) {
			name = e.names[i]
		}
		if err != nil {
			answer = rediserr.Text(err)
		}
		fmt.Fprintf(&b, "; %s: %s", name, answer)
	}
	return b.String()
}

// Unwrap returns the one sentinel that the error matches. The error does not match the errors of single
// nodes: [ErrNotAcquired] of one node does not mean that the lock is held. If another package made the
// error, Unwrap looks for a sentinel from so many nodes that the rest cannot form a quorum. Without one
// it returns [ErrNoQuorum].
func (e *QuorumError) Unwrap() error {
	if e.err != nil {
		return e.err
	}
	for _, answer := range []error{ErrNotAcquired, ErrLost} {
		others := slices.DeleteFunc(slices.Clone(e.Nodes), func(err error) bool { return errors.Is(err, answer) })
		if len(others) < min(e.Need, len(e.Nodes)) {
			return answer
		}
	}
	return ErrNoQuorum
}
