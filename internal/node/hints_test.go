package node

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
)

// TestMessagesSayWhatToDo: the error for a common mistake says what to do, also that of a command in a script. The texts
// are those of the servers.
func TestMessagesSayWhatToDo(t *testing.T) {
	t.Parallel()
	s := redistest.StartTCP(t)
	client := s.Client(t)
	refused := func(o *redis.Options, want string, calls ...*Call) {
		t.Helper()
		client := redis.NewClient(o)
		defer client.Close()
		n := New(client)
		for _, c := range calls {
			require.Regexp(t, "^"+want+"$", do(n, within(c, 500*time.Millisecond)).Err)
		}
	}
	set := func(key string) []*Call {
		return []*Call{
			Command("set", key, "v"), Eval(NewScript("return redis.call('SET', KEYS[1], 'v')"), 1, key),
			Eval(NewScript("return redis.pcall('SET', KEYS[1], 'v')"), 1, key),
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
	refused(o, right, Command("get", "other"), Eval(NewScript("return redis.call('INCR', 'other')"), 0))
	o.Password = "wrong"
	refused(o, `.*WRONGPASS .* \(the client's Username or Password is wrong\)`, Command("get", "mine"))

	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory", "1").Err())
	refused(s.Options(), `OOM command not allowed when used memory > 'maxmemory' \(Redis is full: raise its maxmemory\)`, set("k")[0])
	require.NoError(t, client.ConfigSet(t.Context(), "requirepass", "secret").Err())
	refused(s.Options(), `.*NOAUTH .* \(give the client the password of its user\)`, Command("get", "k"))
}

// TestAnswersAreReadAlikeFromEveryServer: Redis 6 and miniredis put the error of a script after its
// position in the script. Later versions put it before.
func TestAnswersAreReadAlikeFromEveryServer(t *testing.T) {
	for said, want := range map[string]string{
		"WRONGTYPE Operation": "WRONGTYPE Operation",
		"WRONGTYPE Operation script: ba3d4e, on @user_script:21.":                                         "WRONGTYPE Operation",
		"ERR Error running script (call to f_ba3d4e): @user_script:1: WRONGTYPE Operation":                "WRONGTYPE Operation",
		"ERR Error running script (call to f_ba3d4e): @user_script:1: @user_script: 1: -READONLY":         "READONLY",
		"ERR Error compiling script (new function): :10: WRONGTYPE Operation\nstack traceback:\n\t[G]: ?": "WRONGTYPE Operation",
		"ERR Error running script (call to f_ba3d4e): @user_script:1: WRONGTYPE Operation ":               "WRONGTYPE Operation",
		"ERR Error running script": "ERR Error running script",
	} {
		require.Equal(t, want, answerText(answer(said)), said)
		require.Equal(t, want == "READONLY", retryable(answer(said)), said)
		require.Equal(t, want == "WRONGTYPE Operation", errors.Is(Explain(answer(said)), ErrOtherData), said)
	}
	require.Empty(t, answerText(errors.New("WRONGTYPE")))
	require.NotErrorIs(t, Explain(errors.New("WRONGTYPE")), ErrOtherData)
	require.NoError(t, Explain(nil))
}

// TestRetryableRefusals: these are refusals by which the server says that the command may succeed later.
func TestRetryableRefusals(t *testing.T) {
	for _, said := range []string{
		"LOADING Redis is loading the dataset in memory", "BUSY Redis is busy running a script.",
		"TRYAGAIN Multiple keys request during rehashing of slot", "CLUSTERDOWN The cluster is down",
		"MASTERDOWN Link with MASTER is down", "NOREPLICAS Not enough good replicas to write.",
		"ERR max number of clients reached", "READONLY You can't write against a read only replica.",
	} {
		require.True(t, retryable(answer(said)), said)
	}
	for _, said := range []string{
		"BUSYGROUP Consumer Group name already exists", "BUSYKEY Target key name already exists.", "ERR syntax error",
		"OOM command not allowed when used memory > 'maxmemory'.", "MISCONF Redis is configured to save RDB snapshots",
		"NOPERM this user has no permissions to run the 'set' comm", "NOSCRIPT No matching script. Please use EVAL.",
		"WRONGTYPE Operation against a key holding the wrong kind", "CROSSSLOT Keys in request don't hash to the same slot",
	} {
		require.False(t, retryable(answer(said)), said)
	}
}

// TestLongScriptOfAnotherClientPasses: a call that the server refuses as BUSY is sent again until
// the script has ended, and was surely not carried out before.
func TestLongScriptOfAnotherClientPasses(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	n, other, direct := New(s.Client(t)), New(s.Client(t)), s.Client(t)
	require.NoError(t, direct.ConfigSet(t.Context(), "lua-time-limit", "20").Err())
	endless := post(other, Eval(NewScript("while true do end"), 0))
	eventually(t, "the server is busy", func() bool {
		return redis.HasErrorPrefix(direct.Ping(t.Context()).Err(), "BUSY")
	})
	reply := post(n, Command("set", "k", "v", "get"))
	eventually(t, "the call was refused", func() bool { return trouble(n) != nil })
	require.NoError(t, direct.ScriptKill(t.Context()).Err())
	require.Error(t, (<-endless).Err)
	require.Equal(t, Reply{}, <-reply, "it was done once")
}

// TestAnswersSayWhatToDo: a hint follows the error text of Redis, whatever the version of Redis and the
// position in a script. Other errors stay as they are.
func TestAnswersSayWhatToDo(t *testing.T) {
	for said, want := range map[string]string{
		"CROSSSLOT Keys in request don't hash to the same slot": "CROSSSLOT Keys in request don't hash to the same slot " +
			"(a proxy or cluster that shards keys: use a cluster client, or a WithKeyPrefix with a hash tag such as {locks}:)",
		"ERR bad lua script for redis cluster, all the keys that the script uses should be passed using the KEYS array": "ERR bad lua " +
			"script for redis cluster, all the keys that the script uses should be passed using the KEYS array " +
			"(this proxy checks scripts and refuses those of redlatch: connect the client to the servers behind it)",
		"NOPERM no rights script: f_1, on @user_script:57.":                                    "NOPERM no rights (SECURITY.md has the rights that a lock needs)",
		"ERR Error running script (call to f_1): @user_script:57: @user_script: 57: -OOM full": "OOM full (Redis is full: raise its maxmemory)",
		"@user_script: 62: The user executing the script can't run this":                       "ERR The user executing the script can't run this (SECURITY.md has the rights that a lock needs)",
		"ERR The user executing the script can't run this script: f_1, on @user_script:62.":    "ERR The user executing the script can't run this (SECURITY.md has the rights that a lock needs)",
		"ERR ACL failure in script: User u has no permissions script: f_1, on @user_script:9.": "ERR ACL failure in script: User u has no permissions (SECURITY.md has the rights that a lock needs)",
		"@user_script: 46: -NOPERM no rights":                                                  "NOPERM no rights (SECURITY.md has the rights that a lock needs)",
		"ERR the fence register x holds something else":                                        "ERR the fence register x holds something else",
	} {
		err := Explain(answer(said))
		require.EqualError(t, err, want)
		require.ErrorIs(t, err, answer(said))
	}
	other := errors.New("NOPERM, somebody says")
	require.Same(t, other, Explain(other))
	require.NoError(t, Explain(nil))
}
