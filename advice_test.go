package redlatch

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
)

// refusal returns what TryLock says to a client that cannot have a lock.
func refusal(t *testing.T, o *redis.Options, key string, opts ...Option) string {
	t.Helper()
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	l, err := NewSetNXPX(client, append(opts, WithOpTimeout(200*time.Millisecond))...)
	require.NoError(t, err)
	_, err = l.TryLock(t.Context(), key)
	require.Error(t, err)
	require.NotErrorIs(t, err, ErrNotAcquired)
	return err.Error()
}

// TestMessagesSayWhatToDo: what a new user gets wrong ends in a message that says what to do.
func TestMessagesSayWhatToDo(t *testing.T) {
	s := redistest.StartTCP(t)
	client := s.Client(t)
	require.NoError(t, client.LPush(t.Context(), "list", "theirs").Err())
	require.Equal(t, `redlatch: try lock "list": WRONGTYPE Operation against a key holding the wrong kind of value (`+
		`the key, or one that the lock keeps beside it, holds other data: take another key or WithKeyPrefix)`,
		refusal(t, s.Options(), "list"))

	replica := redistest.StartReplica(t, s)
	require.Regexp(t, `^redlatch: try lock "k": (no reply within 200ms: )?READONLY [^(]* \(this server is a replica: connect the client to the primary\)$`,
		refusal(t, replica.Options(), "k"))

	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory", "1").Err())
	require.Equal(t, `redlatch: try lock "k": OOM command not allowed when used memory > 'maxmemory' (Redis is full: raise its maxmemory)`,
		refusal(t, s.Options(), "k"))
	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory", "0").Err())

	require.NoError(t, client.ACLSetUser(t.Context(), "reader", "on", ">right", "~*", "+@read").Err())
	o := s.Options()
	o.Username, o.Password = "reader", "right"
	require.Regexp(t, `NOPERM .* \(SECURITY.md has the rights that a lock needs\)$`, refusal(t, o, "k"))
	o.Password = "wrong"
	require.Regexp(t, `WRONGPASS .* \(the client's Username or Password is wrong\)$`, refusal(t, o, "k"))
	require.NoError(t, client.ConfigSet(t.Context(), "requirepass", "secret").Err())
	require.Regexp(t, `NOAUTH .* \(give the client the password of its user\)$`, refusal(t, s.Options(), "k"))
}

// TestAnswersAreReadAlikeFromEveryServer: Redis 6 and miniredis put what a script says behind where
// it says it, later ones before.
func TestAnswersAreReadAlikeFromEveryServer(t *testing.T) {
	for said, want := range map[string]string{
		"WRONGTYPE Operation": "WRONGTYPE Operation",
		"WRONGTYPE Operation script: ba3d4e, on @user_script:21.":                                         "WRONGTYPE Operation",
		"ERR Error running script (call to f_ba3d4e): @user_script:1: WRONGTYPE Operation":                "WRONGTYPE Operation",
		"ERR Error running script (call to f_ba3d4e): @user_script:1: @user_script: 1: -READONLY":         "READONLY",
		"ERR Error compiling script (new function): :10: WRONGTYPE Operation\nstack traceback:\n\t[G]: ?": "WRONGTYPE Operation",
		"ERR Error running script": "ERR Error running script",
	} {
		require.Equal(t, want, spoken(answerError(said)), said)
		require.Equal(t, want == "READONLY", passing(answerError(said)), said)
	}
	require.Empty(t, spoken(errors.New("WRONGTYPE")))
}

// answerError is an answer of Redis.
type answerError string

func (a answerError) Error() string { return string(a) }
func (answerError) RedisError()     {}
