package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// NotDone marks the error of a call that was not carried out.
type NotDone struct{ Err error }

func (e *NotDone) Error() string { return e.Err.Error() }
func (e *NotDone) Unwrap() error { return e.Err }

// NoReply says that the timeout of a call passed before it succeeded. Last is why the call, or another one on its node, was last
// resent, or nil. It is a [net.Error].
type NoReply struct {
	Within time.Duration
	Last   error
}

func (e *NoReply) Error() string {
	switch {
	case e.Last == nil:
		return fmt.Sprintf("no reply within %v", e.Within)
	case Answered(e.Last):
		return fmt.Sprintf("still failing after %v: %v", e.Within, e.Last)
	}
	return fmt.Sprintf("no reply within %v: %v", e.Within, e.Last)
}

func (e *NoReply) Unwrap() error { return e.Last }

// Timeout returns true.
func (e *NoReply) Timeout() bool { return true }

// Temporary returns true.
func (e *NoReply) Temporary() bool { return true }

// Answered reports whether err is an answer of the server. That of a call that ended with its timeout is none, though it may say
// what the server has answered before.
func Answered(err error) bool {
	_, answered := errors.AsType[redis.Error](err)
	_, silent := errors.AsType[*NoReply](err)
	return answered && !silent
}

// notSent reports whether a command that failed with err cannot have been carried out.
func notSent(err error) bool {
	return Unreachable(err) || errors.Is(err, redis.ErrClosed) ||
		errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted)
}

// Silence reports whether the reason for err is that the server has not answered in time.
func Silence(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout() && !Unreachable(err)
}

// Unreachable reports whether the reason for err is that no connection could be made.
func Unreachable(err error) bool {
	dial, ok := errors.AsType[*net.OpError](err)
	return ok && dial.Op == "dial"
}

// Unavailable reports whether Redis is the reason for err: it did not answer, could not be reached, or answered that it cannot
// serve now.
func Unavailable(err error) bool {
	switch {
	case errors.As(err, new(*NoReply)), errors.Is(err, errNoReply), Unreachable(err):
		return true
	case Answered(err):
		return retryable(err) || says(err, cannotSave, "OOM")
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return false
	}
	return errors.As(err, new(net.Error)) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted)
}

// Cause returns the kind of err in a word: the first word of an answer of Redis, "timeout" or "connection".
func Cause(err error) string {
	word, _, _ := strings.Cut(answerText(err), " ")
	if word == "" && Silence(err) {
		return "timeout"
	}
	return cmp.Or(word, "connection")
}

// cannotSave begins the answer of a server that refuses writes because it cannot save them. A release is retried even so: the key
// would stay until its TTL has passed.
const cannotSave = "MISCONF"

// retryable reports whether the same command may soon succeed: the connection broke, or the server answered that it is not ready.
func retryable(err error) bool {
	if Answered(err) {
		return says(err, "LOADING", "READONLY", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN", "NOREPLICAS", "BUSY ", "ERR max number of clients")
	}
	return Unreachable(err) || // a dial that timed out matches context.DeadlineExceeded
		!errors.Is(err, redis.ErrClosed) && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}

// says reports whether err is an answer of Redis that begins with one of words.
func says(err error, words ...string) bool {
	said := answerText(err)
	return slices.ContainsFunc(words, func(word string) bool { return strings.HasPrefix(said, word) })
}
