package wire

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// TestMintKnowsItsTokens: with any owner and prefix, for writers too, and of no other Mint.
func TestMintKnowsItsTokens(t *testing.T) {
	t.Parallel()
	mint, other := NewMint(), NewMint()
	last := uint64(0)
	for i := range 3000 {
		prefix := i % 400
		token, number := mint.Token(strings.Repeat("x", i%3), Manner(i%4%3), prefix)
		if i%5 == 0 {
			token = WriterMark + token
		}
		again, length, made := mint.Made(token)
		require.True(t, made, token)
		require.Equal(t, min(prefix, LongestPrefix), length)
		require.Equal(t, number, again)
		require.Equal(t, number, NumberOf(token))
		require.Greater(t, number, last, "it grows with every token")
		last = number
		for _, foreign := range []string{text(other.Token("x", Queueing, 0)), Keeper(token), token + "x", "", "somebody"} {
			_, _, made = mint.Made(foreign)
			require.False(t, made, foreign)
		}
		changed := []byte(token)
		at := len(token) - 1 - i%(idLength-2)
		muted := !Parse(token).Queues && at == len(token)-idLength+19
		if changed[at] == '-' || at >= len(token)-2 || muted { // the length of the prefix, and whether its Locker is mute
			continue
		}
		changed[at] = "0123456789abcdef"[(strings.IndexByte("0123456789abcdef", changed[at])+1+i%15)%16]
		_, _, made = mint.Made(string(changed))
		require.False(t, made, "%s, forged from %s", changed, token)
	}
}

// TestNoNumberOfOthers: a token of an other kind has none.
func TestNoNumberOfOthers(t *testing.T) {
	t.Parallel()
	for _, token := range []string{"", "somebody", uuid.Nil.String(), "x" + text(NewMint().Token("", Queueing, 0))} {
		require.Zero(t, NumberOf(token), token)
	}
}

// TestTokensOfOneInstantDiffer: of goroutines that make them side by side.
func TestTokensOfOneInstantDiffer(t *testing.T) {
	t.Parallel()
	mint := NewMint()
	var all sync.Map
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 2000 {
				token, _ := mint.Token("", Queueing, 0)
				if _, known := all.LoadOrStore(token, true); known {
					panic(fmt.Sprint("twice: ", token))
				}
			}
		})
	}
	wg.Wait()
	count := 0
	all.Range(func(any, any) bool { count++; return true })
	require.Equal(t, 16000, count)
}

// TestTokenIsOneAllocation: a free key needs one.
func TestTokenIsOneAllocation(t *testing.T) {
	mint := NewMint()
	require.LessOrEqual(t, testing.AllocsPerRun(1000, func() { mint.Token("api-7:4711", Queueing, 5) }), 1.0)
}

func BenchmarkToken(b *testing.B) {
	mint := NewMint()
	b.ReportAllocs()
	for b.Loop() {
		mint.Token("api-7:4711", Queueing, 5)
	}
}

func BenchmarkMade(b *testing.B) {
	mint := NewMint()
	token, _ := mint.Token("api-7:4711", Queueing, 5)
	b.ReportAllocs()
	for b.Loop() {
		mint.Made(token)
	}
}
