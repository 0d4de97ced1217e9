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
			token := text(mint.Token(owner, Queueing, 0))
			require.WithinRange(t, Parse(token).MadeAt, begin, time.Now())
			require.True(t, minted(token))
			require.Equal(t, owner, Parse(token).Owner)
			id := uuid.MustParse(token[len(token)-idLength:])
			require.Equal(t, []any{uuid.Version(7), uuid.RFC4122}, []any{id.Version(), id.Variant()})
			seen[id.String()[14:]] = true
		}
	}
	require.Len(t, seen, 3000, "what follows the time differs")
	for _, token := range []string{text(mint.Token("", Queueing, 0)), "api-7/" + text(mint.Token("", Queueing, 0)), "~" + text(mint.Token("api-7", Queueing, 0))} {
		require.True(t, Parse(token).Queues, token)
	}
	for _, token := range []string{text(mint.Token("api-7", Polling, 0)), "~" + text(mint.Token("", Polling, 0)), uuid.NewString(), "", "somebody"} {
		require.False(t, Parse(token).Queues, token)
	}
	require.WithinDuration(t, time.Now(), Parse(text(mint.Token("api-7", Polling, 0))).MadeAt, time.Minute)
	for _, token := range []string{"", "somebody", uuid.NewString(), "api-7/" + uuid.NewString(), "~" + text(mint.Token("", Queueing, 0)), "x" + text(mint.Token("", Queueing, 0))} {
		require.Zero(t, Parse(token).MadeAt, token)
	}
}

// TestTokenSaysWhetherItsLockerTellsOthers: a token of any other Locker says that it does, and so do those of
// other libraries.
func TestTokenSaysWhetherItsLockerTellsOthers(t *testing.T) {
	t.Parallel()
	mint := NewMint()
	for range 100 { // the rest of the byte is random
		for _, manner := range []Manner{Queueing, Polling} {
			require.True(t, Parse(WriterMark+text(mint.Token("api-7", manner, 0))).Tells)
		}
		silent := WriterMark + text(mint.Token("api-7", Mute, 0))
		require.False(t, Parse(silent).Tells)
		require.False(t, Parse(Keeper(silent)).Tells)
		require.False(t, Parse(silent).Queues)
		require.WithinDuration(t, time.Now(), Parse(silent).MadeAt, time.Minute)
		require.Equal(t, "api-7", Parse(silent).Owner)
		require.True(t, Parse(silent).HandsOn)
	}
	for _, token := range []string{"", "somebody", uuid.NewString()} {
		require.True(t, Parse(token).Tells)
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
		require.Equal(t, owner, Parse(text(NewMint().Token(owner, Queueing, 0))).Owner)
	}
	require.NoError(t, CheckOwner(ProcessName()))
}

// text returns a token without its number.
func text(token string, _ uint64) string { return token }
