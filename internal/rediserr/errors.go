// Package rediserr says what an error of a Redis client means: whether the command was carried out, whether it
// may soon succeed, whether it is about the whole server, and what a caller reads. It does no IO.
package rediserr

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// ErrServerLeft is the outcome of a command for a server that has left its Cluster or Ring, which closes
// its client. It was not carried out.
var ErrServerLeft = errors.New("the server of the key has left")

// NotDone marks the error of a call that was not carried out.
type NotDone struct{ Err error }

func (e *NotDone) Error() string { return e.Err.Error() }
func (e *NotDone) Unwrap() error { return e.Err }

// NoReply says that the timeout of a call passed before it succeeded. Last is why the call, or
// another one on its node, was last resent, or nil. It is a [net.Error].
type NoReply struct {
	Within time.Duration
	Last   error
	First  bool // the first connection to the server took longer, and a dial may take as long
}

func (e *NoReply) Error() string {
	switch {
	case e.First:
		const text = "no reply within %v: the first connection took longer (raise WithOpTimeout, or Ping first)"
		return fmt.Sprintf(text, e.Within)
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

// Answered reports whether err is an answer of the server. That of a call that ended with its
// timeout is none, though it may say what the server has answered before.
func Answered(err error) bool { return answerOf(err) != nil && !errors.As(err, new(*NoReply)) }

// answerOf returns the answer of Redis in err, or nil. A join of several errors is none, such as
// the answers of all Sentinels, nor is a nil reply.
func answerOf(err error) error {
	switch e := err.(type) { //nolint:errorlint // it unwraps
	case redis.Error:
		if err != redis.Nil { //nolint:errorlint // others match it, too
			return err
		}
	case interface{ Unwrap() error }:
		return answerOf(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			if answer := answerOf(err); answer != nil && reflect.TypeOf(e) != joined {
				return answer
			}
		}
	}
	return nil
}

var joined = reflect.TypeOf(errors.Join(io.EOF))

// NotSent reports whether a command that failed with err was not carried out. The words of a proxy
// do not say so: the server behind it may have carried the command out.
func NotSent(err error) bool {
	return meaningOf(err) != unknown || Unreachable(err) ||
		isOne(err, redis.ErrClosed, ErrServerLeft, redis.ErrPoolTimeout, redis.ErrPoolExhausted)
}

// Silence reports whether the reason for err is that the server has not answered in time.
func Silence(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout() && !Unreachable(err)
}

// Unreachable reports whether the reason for err is that no connection could be made.
func Unreachable(err error) bool {
	var dial *net.OpError
	return errors.As(err, &dial) && dial.Op == "dial"
}

// Unavailable reports whether Redis is the reason for err, as [Explain] returns it: it did not
// answer, could not be reached, or did not carry the command out for a reason that may pass.
func Unavailable(err error) bool {
	if Answered(err) {
		return !Mistake(err)
	}
	return errors.As(err, new(*NoReply)) || errors.As(err, new(*broken))
}

// Mistake reports whether err is an answer that a repetition of the command would get again: the
// command, its rights or the data are wrong. Every other error is an outage, since proxies, clouds
// and clients have words of their own for those. Passwords are rotated, so a wrong one is an outage
// too.
func Mistake(err error) bool { return meaningOf(err) == mistake || MissesRight(err) }

// MissesRight reports whether err is the answer to a user who lacks a right.
func MissesRight(err error) bool { return meaningOf(err) == right }

// AboutServer reports whether err is about the whole server: it says so, or the connection broke.
// Any other error may be about one key, since proxies and hooks have words of their own.
func AboutServer(err error) bool {
	if Answered(err) {
		return meaningOf(err) == refusalOfServer
	}
	return errors.As(err, new(net.Error)) || isOne(err, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed,
		context.Canceled, context.DeadlineExceeded, redis.ErrPoolTimeout, redis.ErrPoolExhausted)
}

// isOne reports whether err matches one of some errors.
func isOne(err error, of ...error) bool {
	return slices.ContainsFunc(of, func(target error) bool { return errors.Is(err, target) })
}

// broken is an error without an answer: of the network, of the client, or of a hook of it. It is
// printed on one line, with a hint if there is one. It matches no error of a context, since that of
// the caller has not ended, and no answer: Sentinels may be among those who failed.
type broken struct {
	err  error
	hint string
}

func (e *broken) Error() string { return lineBreaks.ReplaceAllString(e.err.Error(), " ") + e.hint }

func (e *broken) Is(target error) bool {
	return !isOne(target, context.Canceled, context.DeadlineExceeded, redis.Nil) && errors.Is(e.err, target)
}

func (e *broken) As(target any) bool {
	_, answer := target.(*redis.Error)
	return !answer && errors.As(e.err, target)
}

var lineBreaks = regexp.MustCompile(`\s*[\r\n]+\s*`)

// Cause returns the kind of err in a word: that of the answer of Redis, if it is one of its own, and
// otherwise "error" for an answer, "panic", "timeout" or "connection".
func Cause(err error) string {
	word, _, _ := strings.Cut(answerText(err), " ")
	switch {
	case errors.As(err, new(panicError)):
		return "panic"
	case slices.Contains(redisWords, word):
		return word
	case answerOf(err) != nil:
		return "error"
	case Silence(err):
		return "timeout"
	}
	return "connection"
}

// redisWords begin the answers of Redis. Proxies have others, of which there is no end.
var redisWords = strings.Fields(`ERR WRONGTYPE NOPERM NOAUTH WRONGPASS LOADING BUSY MASTERDOWN READONLY
	NOREPLICAS MISCONF OOM CLUSTERDOWN MOVED ASK TRYAGAIN CROSSSLOT NOSCRIPT UNBLOCKED EXECABORT UNKILLABLE
	NOTBUSY NOPROTO DENIED`)

// Retryable reports whether the same command may soon succeed. The contexts of calls that go on
// have not ended.
func Retryable(err error) bool { return !Mistake(err) && !errors.Is(err, redis.ErrClosed) }
