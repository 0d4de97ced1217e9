package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/rediserr"
	"github.com/redlatch/redlatch/internal/testing/redistest"
)

// TestMessagesSayWhatToDo: the error for a common mistake says what to do, also that of a command
// in a script. The texts are those of the servers.
func TestMessagesSayWhatToDo(t *testing.T) {
	t.Parallel()
	s := redistest.StartTCP(t)
	client := s.Client(t)
	refused := func(o *redis.Options, want string, calls ...*Call) {
		t.Helper()
		n := New(dial(t, o))
		for _, c := range calls {
			require.Regexp(t, "^"+want+"$", do(n, within(c, 500*time.Millisecond)).Err)
		}
	}
	set := func(key string) []*Call {
		return []*Call{
			Command("set", key, "v"), Eval(scriptOf("return redis.call('SET', KEYS[1], 'v')"), 1, key),
			Eval(scriptOf("return redis.pcall('SET', KEYS[1], 'v')"), 1, key),
		}
	}
	require.NoError(t, client.Set(t.Context(), "text", "theirs", 0).Err())
	refused(s.Options(), `WRONGTYPE Operation against a key holding the wrong kind of value \(the key, or a companion key of `+
		`the lock, holds other data: use another key or WithKeyPrefix\)`, Eval(fail, 1, "text"), Command("lpush", "text", "x"))
	refused(redistest.StartReplica(t, s).Options(), `still failing after 500ms: READONLY [^(]* `+
		`\(this server is a replica: connect the client to the primary\)`, set("k")...)

	o := s.User(t, "~mine", "+@read", "+@scripting", "+incr")
	const right = `(NOPERM|ERR) .* \(SECURITY.md has the rights that a lock needs\)`
	refused(o, right, set("mine")...)
	refused(o, right, Command("get", "other"), Eval(scriptOf("return redis.call('INCR', 'other')"), 0))
	o.Password = "wrong"
	refused(o, `.*WRONGPASS .* \(the client's Username or Password is wrong\)`, Command("get", "mine"))

	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory", "1").Err())
	refused(s.Options(), `still failing after 500ms: OOM command not allowed when used memory > 'maxmemory' \(Redis is full: raise its maxmemory\)`, set("k")[0])
	require.NoError(t, client.ConfigSet(t.Context(), "requirepass", "secret").Err())
	refused(s.Options(), `.*NOAUTH .* \(give the client the password of its user\)`, Command("get", "k"))
}

// TestAnswersAreReadAlikeFromEveryServer: servers put the error of a script before or behind its
// place in the script. A hint follows the error. To an unknown command servers answer with its
// arguments, of which one is a token: no error has them.
func TestAnswersAreReadAlikeFromEveryServer(t *testing.T) {
	const right = " (SECURITY.md has the rights that a lock needs)"
	const other = " (the key, or a companion key of the lock, holds other data: use another key or WithKeyPrefix)"
	const eval = " (redlatch needs EVAL: connect the client to servers that have it)"
	const moves = " (the Cluster moves the slot of this key to another server: the key can be used again when it has moved)"
	for said, want := range map[string]string{
		"WRONGTYPE Operation": "WRONGTYPE Operation" + other,
		"WRONGTYPE Operation script: ba3d4e, on @user_script:21.":                                         "WRONGTYPE Operation" + other,
		"WRONGTYPE Operation script: on @user_script:21.":                                                 "WRONGTYPE Operation" + other, // Valkey 9.1
		"ERR Error running script (call to f_ba3d4e): @user_script:1: WRONGTYPE Operation":                "WRONGTYPE Operation" + other,
		"ERR Error compiling script (new function): :10: WRONGTYPE Operation\nstack traceback:\n\t[G]: ?": "WRONGTYPE Operation" + other,
		"ERR Error running script (call to f_1): @user_script:57: @user_script: 57: -OOM full ":           "OOM full (Redis is full: raise its maxmemory)",
		"@user_script: 46: -NOPERM no rights":                                                             "NOPERM no rights" + right,
		"@user_script: 62: The user executing the script can't run this":                                  "ERR The user executing the script can't run this" + right,
		"ERR The user executing the script can't run this script: f_1, on @user_script:62.":               "ERR The user executing the script can't run this" + right,
		"ERR ACL failure in script: User u has no permissions script: f_1, on @user_script:9.":            "ERR ACL failure in script: User u has no permissions" + right,
		"ERR ACL failure in script: User u has no permissions script: on @user_script:9.":                 "ERR ACL failure in script: User u has no permissions" + right,
		"ERR the fence script: of x is broken":                                                            "ERR the fence script: of x is broken",

		"TRYAGAIN Multiple keys": "TRYAGAIN Multiple keys" + moves,
		"ASK 7629 127.0.0.1:1":   "ASK 7629 127.0.0.1:1" + moves,
		"ERR Script attempted to access a non local key in a cluster node script: f_1, on @user_script:21.":                                          "ERR Script attempted to access a non local key in a cluster node" + moves,
		"ERR Attempted to access a non local key in a cluster node script: on @user_script:21.":                                                      "ERR Attempted to access a non local key in a cluster node" + moves,
		"ERR Error running script (call to f_1): @user_script:9: @user_script: 9: Lua script attempted to access a non local key in a cluster node ": "ERR Lua script attempted to access a non local key in a cluster node" + moves,

		"CROSSSLOT Keys in request": "CROSSSLOT Keys in request " +
			"(a proxy or cluster that shards keys: use a cluster client, or a WithKeyPrefix with a hash tag such as {locks}:)",
		"ERR bad lua script": "ERR bad lua script " +
			"(this proxy checks scripts, and refuses the scripts of redlatch: connect the client to the servers behind it)",
		"ERR Error running script":           "ERR Error running script",
		"ERR the fence register x is broken": "ERR the fence register x is broken",

		"ERR unknown command 'EVALSHA', with args beginning with: 'f6a1' '1' 'k' 'sesame' ": "ERR unknown command 'EVALSHA'" + eval, // Redis 7, Valkey
		"ERR unknown command `evalsha`, with args beginning with: `f6a1`, `1`, `sesame`, ":  "ERR unknown command `evalsha`" + eval, // Redis 5 and 6
		"ERR unknown command: 'evalsha' sesame":                                             "ERR unknown command: 'evalsha'" + eval,
		"ERR Unknown Command 'evalsha' with args: script: sesame":                           "ERR Unknown Command 'evalsha'" + eval,
		"ERR unknown command 'eval', with args beginning with: 'two\nlines' 'sesame'":       "ERR unknown command 'eval'" + eval,
		"ERR unknown command 'PUBSUB', with args beginning with: 'sesame'":                  "ERR unknown command 'PUBSUB'",
		"ERR Unknown Redis command called from script":                                      "ERR Unknown Redis command called from script",
		"ERR unknown subcommand 'X'. Try SCRIPT HELP.":                                      "ERR unknown subcommand 'X'. Try SCRIPT HELP.",
	} {
		err := rediserr.Explain(answer(said))
		require.EqualError(t, err, want)
		require.True(t, rediserr.Answered(err))
		require.Equal(t, strings.HasPrefix(want, "WRONGTYPE"), errors.Is(err, rediserr.ErrOtherData))
		require.Equal(t, strings.HasPrefix(want, "ERR bad lua") || strings.HasSuffix(want, eval), errors.Is(err, rediserr.ErrBadScript))
		for ; err != nil; err = errors.Unwrap(err) {
			require.NotContains(t, err.Error(), "sesame")
		}
	}
}

// TestErrorsSayWhoHasToAct: what is no answer, and no known mistake, is due to Redis. Such a call
// is sent again. Cause names the cause in a word. No error of the client matches that of a context,
// since the caller's goes on, and each is printed on one line.
func TestErrorsSayWhoHasToAct(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	sentinels := fmt.Errorf("redis: all sentinels specified in configuration are unreachable: %w",
		errors.Join(errSlowDial, fmt.Errorf("two: %w", context.DeadlineExceeded)))
	wrongName := fmt.Errorf("redis: all sentinels specified in configuration are unreachable: %w", errors.Join(redis.Nil, redis.Nil))
	wrongPassword := fmt.Errorf("redis: all sentinels specified in configuration are unreachable: %w", errors.Join(answer("NOPERM no"), io.EOF))
	for cause, errs := range map[string][]error{
		"connection": {
			&rediserr.NoReply{Within: time.Second, Last: rediserr.Explain(refused)}, &rediserr.NotDone{Err: &rediserr.NoReply{Within: time.Second, Last: refused}}, refused,
			errSlowDial, io.EOF, io.ErrUnexpectedEOF, redis.ErrPoolTimeout, errNoReply, sentinels, context.Canceled, wrongName, wrongPassword, redis.Nil,
			&net.OpError{Op: "read", Net: "tcp", Err: errors.New("connection reset by peer")}, errors.New("NOPERM: a circuit is open"),
		},
		"timeout": {
			&rediserr.NoReply{Within: time.Second}, &rediserr.NoReply{Within: time.Second, Last: rediserr.Explain(io.EOF)}, &rediserr.NotDone{Err: &rediserr.NoReply{Last: errTooLate}},
			context.DeadlineExceeded,
		},
		"LOADING": {&rediserr.NoReply{Within: time.Second, Last: errLoading}},
		"error": {
			answer("upstream failure"), answer("upstream connect error or disconnect/reset before headers"), answer("no upstream host"),
			answer("8c1f-41 the id of a request"), answer(""),
		},
		"ERR": {
			answer("ERR max number of clients reached"), answer("ERR Connection refused"), answer("ERR Connection timed out"),
			answer("ERR internal error"), answer("ERR proxy: unknown host"), answer("ERR Script attempted to access a non local key in a cluster node"),
		},
		"OOM": {answer("OOM no")}, "MISCONF": {answer("MISCONF no")}, "READONLY": {answer("READONLY no")},
		"NOAUTH": {answer("NOAUTH Authentication required.")}, "WRONGPASS": {answer("WRONGPASS invalid")},
		"UNBLOCKED": {answer("UNBLOCKED force unblock from blocking operation")},
	} {
		for _, err := range errs {
			explained := rediserr.Explain(err)
			require.True(t, rediserr.Unavailable(explained), "%T %v", err, err)
			require.True(t, rediserr.Unavailable(fmt.Errorf("while locking: %w", explained)), "%T %v", err, err)
			require.True(t, rediserr.Retryable(err), "%T %v", err, err)
			require.Equal(t, cause, rediserr.Cause(explained), "%T %v", err, err)
			require.NotErrorIs(t, explained, context.DeadlineExceeded)
			require.NotErrorIs(t, explained, context.Canceled)
			require.NotErrorIs(t, explained, redis.Nil)
			require.NotContains(t, explained.Error(), "\n")
			require.Equal(t, rediserr.Unreachable(err), rediserr.Unreachable(explained))
		}
	}
	for _, said := range []string{
		"WRONGTYPE no", "NOPERM no", "CROSSSLOT no", "ERR unknown command 'evalsha'", "ERR Unknown Command 'x'", "unknown command 'eval'",
		"ERR wrong number of arguments for 'eval' command", "ERR the fence register k holds something else",
		"ERR Unknown Redis command called from script script: 1, on @user_script:1.", "ERR bad lua script for redis cluster",
		"ERR Unknown command called from script script: on @user_script:1.", "ERR This Redis command is not allowed from script",
		"ERR This Valkey command is not allowed from script script: on @user_script:1.",
	} {
		err := rediserr.Explain(answer(said))
		require.False(t, rediserr.Unavailable(err), said)
		require.True(t, rediserr.Mistake(err), said)
		require.False(t, rediserr.Retryable(err), said)
	}
	require.True(t, net.Error(&rediserr.NoReply{}).Temporary()) //nolint:staticcheck // some callers still ask
	require.False(t, rediserr.Unavailable(context.DeadlineExceeded), "that of the caller")
	require.False(t, rediserr.Unavailable(rediserr.Explain(redis.ErrClosed)))
}
