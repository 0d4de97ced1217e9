package redlatch

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// TestTokenSaysWhenItWasMade: its UUID is of version 7. Those of other libraries and of older versions say nothing.
func TestTokenSaysWhenItWasMade(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for _, owner := range []string{"", "api-7", "a/b"} {
		for range 1000 {
			begin := time.Now().Truncate(time.Millisecond)
			token := tokenOf(owner)
			require.WithinRange(t, madeAt(token), begin, time.Now())
			require.True(t, minted(token))
			require.Equal(t, owner, ownerOf(token))
			id := uuid.MustParse(token[len(token)-idLength:])
			require.Equal(t, []any{uuid.Version(7), uuid.RFC4122}, []any{id.Version(), id.Variant()})
			seen[id.String()[14:]] = true
		}
	}
	require.Len(t, seen, 3000, "what follows the time is random")
	for _, token := range []string{"", "somebody", uuid.NewString(), "api-7/" + uuid.NewString(), "~" + tokenOf(""), "x" + tokenOf("")} {
		require.Zero(t, madeAt(token), token)
	}
}
