package redisurl

import (
	"cmp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestURLOfSentinelsHasAllOfTheServers: the user, the password and the database are those of the
// Redis servers.
func TestURLOfSentinelsHasAllOfTheServers(t *testing.T) {
	o, err := sentinels("user:p%40ss@a:1,b:2/main/3?read_timeout=7s")
	require.NoError(t, err)
	require.Equal(t, []string{"a:1", "b:2"}, o.SentinelAddrs)
	require.Equal(t, []any{"main", "user", "p@ss", 3, "", ""}, []any{o.MasterName, o.Username, o.Password, o.DB, o.SentinelUsername, o.SentinelPassword})
	require.Equal(t, 7*time.Second, o.ReadTimeout)
}

// TestSentinelsHaveAPasswordOfTheirOwn beside that of the Redis servers.
func TestSentinelsHaveAPasswordOfTheirOwn(t *testing.T) {
	o, err := sentinels("user:p%40ss@a:1/main?sentinel_password=s%2Fecret&sentinel_username=watcher")
	require.NoError(t, err)
	require.Equal(t, []any{"user", "p@ss", "watcher", "s/ecret"}, []any{o.Username, o.Password, o.SentinelUsername, o.SentinelPassword})
	o, err = sentinels("a:1/main?sentinel_password=secret")
	require.NoError(t, err)
	require.Equal(t, []any{"", "", "", "secret"}, []any{o.Username, o.Password, o.SentinelUsername, o.SentinelPassword})
}

// TestPasswordMustBeEncoded: a URL whose password has special characters names no other server in
// place of its own, and what is wrong with it is known.
func TestPasswordMustBeEncoded(t *testing.T) {
	for _, scheme := range []string{"redis://", "rediss://", "redis+sentinel://", "redis+cluster://", "unix://"} {
		tail := map[string]string{"redis+sentinel://": "host:1/main", "unix://": "/socket"}[scheme]
		for _, password := range []string{"a/b", "1/b", "a?b", "1?b", "a#b", "1#b", "1%zz", "a%b"} {
			text := scheme + "user:" + password + "@" + cmp.Or(tail, "host:1")
			_, err := NewClient(text, nil)
			require.Error(t, err, text)
			require.True(t, Unescaped(text), text)
		}
		text := scheme + "user:a%2Fb%40c%23@" + cmp.Or(tail, "host:1")
		c, err := NewClient(text, nil)
		require.NoError(t, err, text)
		require.NoError(t, c.Close())
		require.False(t, Unescaped(text), text)
		require.False(t, Unescaped(scheme+"host/db"), scheme)
	}
}
