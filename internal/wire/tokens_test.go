package wire

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// TestTokenSaysWhenItWasMade: its UUID is of version 7, or of version 8 for a Locker that polls.
// Those of other libraries and of older versions say nothing.
func TestTokenSaysWhenItWasMade(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	mint := NewMint()
	for _, owner := range []string{"", "api-7", "a/b"} {
		for range 1000 {
			begin := time.Now().Truncate(time.Millisecond)
			token := mint.Token(owner, false, 0)
			require.WithinRange(t, MadeAt(token), begin, time.Now())
			require.True(t, minted(token))
			require.Equal(t, owner, Owner(token))
			id := uuid.MustParse(token[len(token)-idLength:])
			require.Equal(t, []any{uuid.Version(7), uuid.RFC4122}, []any{id.Version(), id.Variant()})
			seen[id.String()[14:]] = true
		}
	}
	require.Len(t, seen, 3000, "what follows the time differs")
	for _, token := range []string{mint.Token("", false, 0), "api-7/" + mint.Token("", false, 0), "~" + mint.Token("api-7", false, 0)} {
		require.True(t, Queues(token), token)
	}
	for _, token := range []string{mint.Token("api-7", true, 0), "~" + mint.Token("", true, 0), uuid.NewString(), "", "somebody"} {
		require.False(t, Queues(token), token)
	}
	require.WithinDuration(t, time.Now(), MadeAt(mint.Token("api-7", true, 0)), time.Minute)
	for _, token := range []string{"", "somebody", uuid.NewString(), "api-7/" + uuid.NewString(), "~" + mint.Token("", false, 0), "x" + mint.Token("", false, 0)} {
		require.Zero(t, MadeAt(token), token)
	}
}

// TestDefaultOwnerIsValid: whatever the name of the host is, and without one.
func TestDefaultOwnerIsValid(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]string{
		"api-7": "api-7:4711", "": "?:4711", "~7": "?7:4711", "a b/c": "a b/c:4711", "a\nb\x1b": "a?b?:4711", "Zürich": "Zürich:4711",
		"\xff":                   "\ufffd:4711",
		strings.Repeat("x", 300): strings.Repeat("x", 195) + ":4711",
		strings.Repeat("ü", 300): strings.Repeat("ü", 97) + ":4711",
	} {
		owner := hostAndPid(host, 4711)
		require.NoError(t, CheckOwner(owner))
		require.Equal(t, want, owner)
		require.Equal(t, owner, Owner(NewMint().Token(owner, false, 0)))
	}
	require.NoError(t, CheckOwner(ProcessName()))
}
