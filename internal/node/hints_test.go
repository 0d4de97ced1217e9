package node

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
)

// TestMessagesSayWhatToDo: the error for a common mistake says what to do. A refusal that may pass is
// retried until the timeout.
func TestMessagesSayWhatToDo(t *testing.T) {
	t.Parallel()
	s := redistest.StartTCP(t)
	client := s.Client(t)
	push := NewScript("return redis.call('LPUSH', KEYS[1], 'x')")
	refusal := func(o *redis.Options, c *Call) string {
		client := redis.NewClient(o)
		defer client.Close()
		r := New(client).Do(t.Context(), within(c, time.Second))
		require.Error(t, r.Err)
		return r.Err.Error()
	}
	require.NoError(t, client.Set(t.Context(), "text", "theirs", 0).Err())
	const other = "WRONGTYPE Operation against a key holding the wrong kind of value (the key, or a " +
		"companion key of the lock, holds other data: use another key or WithKeyPrefix)"
	require.Equal(t, other, refusal(s.Options(), Eval(push, 1, "text")))
	require.Equal(t, other, refusal(s.Options(), Command("lpush", "text", "x")))

	replica := redistest.StartReplica(t, s)
	require.Regexp(t, `^still failing after 1s: READONLY [^(]* \(this server is a replica: connect the client to the primary\)$`,
		refusal(replica.Options(), Eval(push, 1, "k")))

	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory", "1").Err())
	require.Equal(t, "OOM command not allowed when used memory > 'maxmemory' (Redis is full: raise its maxmemory)",
		refusal(s.Options(), Command("set", "k", "v")))
	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory", "0").Err())

	require.NoError(t, client.ConfigSet(t.Context(), "requirepass", "secret").Err())
	require.Regexp(t, `NOAUTH .* \(give the client the password of its user\)$`, refusal(s.Options(), Command("get", "k")))
}

// TestMissingRightsSayWhatToDo: the error for a command, a key or a password that Redis refuses says what to do. That
// includes a command of a script, alone or in a batch.
func TestMissingRightsSayWhatToDo(t *testing.T) {
	t.Parallel()
	o := redistest.Start(t).User(t, "~mine", "+@read", "+@scripting", "+incr")
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	n := New(client)
	for _, c := range []func() *Call{
		func() *Call { return Command("set", "mine", "v") },
		func() *Call { return Command("get", "other") },
		func() *Call { return Eval(NewScript("return redis.call('SET', KEYS[1], 'v')"), 1, "mine") },
		func() *Call { return Eval(NewScript("return redis.pcall('SET', KEYS[1], 'v')"), 1, "mine") },
		func() *Call { return Eval(NewScript("return redis.call('INCR', 'other')"), 0) },
		func() *Call { return Eval(NewScript("return redis.pcall('INCR', 'other')"), 0) },
	} {
		for _, p := range append(together(t, n, c(), c()), post(t.Context(), n, within(c(), limit))) {
			err := p.wait(t).Err
			require.Regexp(t, `^(NOPERM|ERR) .* \(SECURITY.md has the rights that a lock needs\)$`, err)
			require.Contains(t, []string{"NOPERM", "ERR"}, Cause(err))
		}
	}
	o.Password = "wrong"
	stranger := redis.NewClient(o)
	t.Cleanup(func() { _ = stranger.Close() })
	require.Regexp(t, `WRONGPASS .* \(the client's Username or Password is wrong\)$`,
		New(stranger).Do(t.Context(), within(Command("get", "mine"), time.Second)).Err)
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
	for said, want := range map[string]bool{
		"LOADING Redis is loading the dataset in memory":            true,
		"BUSY Redis is busy running a script.":                      true,
		"TRYAGAIN Multiple keys request during rehashing of slot":   true,
		"CLUSTERDOWN The cluster is down":                           true,
		"MASTERDOWN Link with MASTER is down":                       true,
		"NOREPLICAS Not enough good replicas to write.":             true,
		"ERR max number of clients reached":                         true,
		"READONLY You can't write against a read only replica.":     true,
		"BUSYGROUP Consumer Group name already exists":              false,
		"BUSYKEY Target key name already exists.":                   false,
		"ERR syntax error":                                          false,
		"OOM command not allowed when used memory > 'maxmemory'.":   false,
		"MISCONF Redis is configured to save RDB snapshots":         false,
		"NOPERM this user has no permissions to run the 'set' comm": false,
		"NOSCRIPT No matching script. Please use EVAL.":             false,
		"WRONGTYPE Operation against a key holding the wrong kind":  false,
		"CROSSSLOT Keys in request don't hash to the same slot":     false,
	} {
		require.Equal(t, want, retryable(answer(said)), said)
	}
}

// TestLongScriptOfAnotherClientPasses: a call that the server refuses as BUSY is sent again until
// the script has ended, and was surely not carried out before.
func TestLongScriptOfAnotherClientPasses(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	direct := s.Client(t)
	n := New(s.Client(t))
	require.NoError(t, direct.Set(t.Context(), "k", "mine", 0).Err())
	end := runForever(t, s)
	c := within(Command("del", "k"), limit)
	p := post(t.Context(), n, c)
	eventually(t, "the call was refused", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return c.trouble != nil
	})
	end()
	r := p.wait(t)
	require.NoError(t, r.Err)
	require.Equal(t, int64(1), r.Value)
	require.False(t, r.Resent)
}

// runForever makes another client run an endless script. end kills the script.
func runForever(t *testing.T, s *redistest.Server) (end func()) {
	t.Helper()
	direct := s.Client(t)
	require.NoError(t, direct.ConfigSet(t.Context(), "lua-time-limit", "20").Err())
	o := s.Options()
	o.ReadTimeout = -1
	other := redis.NewClient(o)
	ended := make(chan error, 1)
	go func() { ended <- other.Eval(context.Background(), "while true do end", nil).Err() }() // ends with end
	eventually(t, "the server is busy", func() bool {
		return redis.HasErrorPrefix(direct.Ping(t.Context()).Err(), "BUSY")
	})
	return func() {
		t.Helper()
		require.NoError(t, direct.ScriptKill(t.Context()).Err())
		require.Error(t, <-ended)
		require.NoError(t, other.Close())
	}
}

// TestAnswersSayWhatToDo: a hint follows the error text of Redis, whatever the version of Redis and the
// position in a script. Other errors stay as they are.
func TestAnswersSayWhatToDo(t *testing.T) {
	for said, want := range map[string]string{
		"CROSSSLOT Keys in request don't hash to the same slot": "CROSSSLOT Keys in request don't hash to the same slot " +
			"(a proxy or cluster that shards keys: use a cluster client, or a WithKeyPrefix with a hash tag such as {locks}:)",
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
