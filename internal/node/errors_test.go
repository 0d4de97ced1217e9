package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestUnavailable: Unavailable is true for errors that are due to Redis, and not for errors that the
// caller caused or has to fix. Cause names the cause in a word.
func TestUnavailable(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	loading := answer("LOADING Redis is loading the dataset in memory")
	for _, c := range []struct {
		err         error
		unavailable bool
		cause       string
	}{
		{&NoReply{Within: time.Second}, true, "timeout"},
		{&NoReply{Within: time.Second, Last: refused}, true, "connection"},
		{&NoReply{Within: time.Second, Last: io.EOF}, true, "timeout"},
		{&NoReply{Within: time.Second, Last: loading}, true, "LOADING"},
		{&NotDone{&NoReply{Within: time.Second, Last: refused}}, true, "connection"},
		{&NotDone{&NoReply{Within: time.Second, Last: errTooLate}}, true, "timeout"},
		{refused, true, "connection"},
		{&net.OpError{Op: "dial", Net: "tcp", Err: context.DeadlineExceeded}, true, "connection"},
		{&net.OpError{Op: "read", Net: "tcp", Err: errors.New("connection reset by peer")}, true, "connection"},
		{io.EOF, true, "connection"},
		{io.ErrUnexpectedEOF, true, "connection"},
		{redis.ErrPoolTimeout, true, "connection"},
		{errNoReply, true, "connection"},
		{loading, true, "LOADING"},
		{answer("READONLY You can't write against a read only replica."), true, "READONLY"},
		{answer("OOM command not allowed when used memory > 'maxmemory'."), true, "OOM"},
		{answer("MISCONF Redis is configured to save RDB snapshots"), true, "MISCONF"},

		{answer("WRONGTYPE Operation against a key holding the wrong kind of value"), false, "WRONGTYPE"},
		{answer("NOPERM this user has no permissions to run the 'evalsha' command"), false, "NOPERM"},
		{answer("NOAUTH Authentication required."), false, "NOAUTH"},
		{context.Canceled, false, "connection"},
		{context.DeadlineExceeded, false, "timeout"},
		{&NotDone{context.DeadlineExceeded}, false, "timeout"},
		{errors.New("redis: nil"), false, "connection"},
	} {
		for _, err := range []error{c.err, Explain(c.err), fmt.Errorf("while locking: %w", c.err)} {
			require.Equal(t, c.unavailable, Unavailable(err), "%T %v", c.err, err)
			require.Equal(t, c.cause, Cause(err), "%T %v", c.err, err)
		}
	}
}

// TestAnswersAreCutBeforeTheArguments: to an unknown command servers answer with its arguments, of which one is
// a token. Neither the error nor one that it wraps has them.
func TestAnswersAreCutBeforeTheArguments(t *testing.T) {
	for said, want := range map[string]string{
		"ERR unknown command 'EVALSHA', with args beginning with: 'f6a1' '1' 'k' 'sesame' ": "ERR unknown command 'EVALSHA'", // Redis 7, Valkey
		"ERR unknown command `evalsha`, with args beginning with: `f6a1`, `1`, `sesame`, ":  "ERR unknown command `evalsha`", // Redis 5 and 6
		"ERR unknown command: 'evalsha' sesame":                                             "ERR unknown command: 'evalsha'",
		"ERR Unknown Command 'evalsha' with args: script: sesame":                           "ERR Unknown Command 'evalsha'",
		"ERR unknown command 'eval', with args beginning with: 'two\nlines' 'sesame'":       "ERR unknown command 'eval'",
		"ERR unknown command 'EVALSHA'":                                                     "ERR unknown command 'EVALSHA'", // Redis 4
	} {
		err := Explain(answer(said))
		require.EqualError(t, err, want)
		require.True(t, Answered(err))
		require.Equal(t, "ERR", Cause(err))
		for ; err != nil; err = errors.Unwrap(err) {
			require.NotContains(t, err.Error(), "sesame")
		}
	}
	for _, said := range []string{
		"ERR Unknown Redis command called from script", "ERR Unknown command called from script", "ERR unknown subcommand 'X'. Try SCRIPT HELP.",
	} {
		require.EqualError(t, Explain(answer(said)), said)
	}
}
