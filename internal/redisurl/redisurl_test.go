package redisurl

import (
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
