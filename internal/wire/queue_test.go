package wire

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/clock"
)

// TestHandoverIsReadStrictly: the parser accepts what announce.lua publishes, and nothing else.
func TestHandoverIsReadStrictly(t *testing.T) {
	g, ok := ParseHandOver("1700000000 999999 220000000123 23 2000 redlatch:1 a token the key")
	require.True(t, ok)
	require.Equal(t, HandOver{Token: "a token", Key: " the key", Tick: 220000000123, At: clock.RedisAt(1700000000, 999999)}, g)
	for _, good := range []string{
		"1 1 140737488355327 5 1 c xk", // the highest tick, 2^47 - 1
		"1 1 1 5 1 c x",                // the key is empty
		"1 1 1 6 1 -c xk", "8589934592 1 1 5 1 c xk",
	} {
		g, ok := ParseHandOver(good)
		require.True(t, ok, good)
		require.Equal(t, "x", g.Token, good)
	}
	for _, bad := range []string{
		"", "1 2 3 4", "1 1000000 1 5 1 c xk", "8589934593 1 1 5 1 c xk", "99999999999 1 1 5 1 c xk", "1 1 1 9 1 c xk", "1 1 -1 5 1 c xk",
		"1 1e3 1 5 1 c xk", "1 1 140737488355328 5 1 c xk", "1 1 9007199254740992 5 1 c xk", "1 1 1 -1 1 c xk", "1 1 1 3 1 c xk",
		"1 1 5 1 c xk", strings.Repeat("9", 400),
	} {
		_, ok := ParseHandOver(bad)
		require.False(t, ok, bad)
	}
}

// TestEntryNamesWhatAReleaseNeeds: an entry has the claim, a limit, the channel, and the token. A dash
// before the channel says that PUBSUB NUMSUB does not say whether the process listens.
func TestEntryNamesWhatAReleaseNeeds(t *testing.T) {
	require.Equal(t, "1500 redlatch:1 api-7/pid 12/a", Entry(1500*time.Millisecond, 0, false, "redlatch:1", "api-7/pid 12/a"))
	require.Equal(t, "1 -redlatch:1 a", Entry(time.Millisecond, 0, true, "redlatch:1", "a"))
	require.Equal(t, "1500:3 redlatch:1 a", Entry(1500*time.Millisecond, 3, false, "redlatch:1", "a"))
}

// FuzzHandover: no message makes the parser panic. A message that it accepts has the token that it
// returns.
func FuzzHandover(f *testing.F) {
	f.Add("1700000000 999999 220000000123 23 2000 redlatch:1 a token the key")
	f.Add("1 1 1 5")
	f.Fuzz(func(t *testing.T, message string) {
		g, ok := ParseHandOver(message)
		if ok && (!strings.Contains(message, " "+g.Token) || g.Tick >= 1<<47 || g.At < 0) {
			t.Errorf("%q was read as %+v", message, g)
		}
	})
}
