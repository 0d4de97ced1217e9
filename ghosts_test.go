package redlatch

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/wire"
)

// TestSparedTokensAreNeverForgotten, however many there are: what there is no room for spares all tokens that
// are older.
func TestSparedTokensAreNeverForgotten(t *testing.T) {
	t.Parallel()
	mint := wire.NewMint()
	known := tokens{used: make(map[uint64]*attempt)}
	number := func() uint64 {
		_, number := mint.Token("", wire.Queueing, 0)
		return number
	}
	var spared []uint64
	for i := range 1000 {
		before, s := number(), number()
		known.spareLocked(s)
		spared = append(spared, s)
		for _, old := range spared {
			require.True(t, known.isSparedLocked(old))
		}
		require.False(t, known.isSparedLocked(number()))
		if i < len(known.spared)-1 {
			require.False(t, known.isSparedLocked(before), "there is room for all that were spared")
		}
	}
}

// TestOldSightingsAreNoGhosts: a refusal that was on its way when the token was released, and the message with which it
// was granted.
func TestOldSightingsAreNoGhosts(t *testing.T) {
	t.Parallel()
	known := tokens{used: make(map[uint64]*attempt)}
	message := func(tick uint64, at clock.Redis) sighting {
		return sighting{message: &wire.HandOver{Tick: tick, At: at}}
	}
	for i := range 200 {
		tick, at := uint64(1000+i), clock.Redis(5000+i)
		a := &attempt{minted: uint64(i + 1), grant: grant{tick: tick, handed: at}}
		known.used[a.minted] = a
		known.forgetLocked(&attempt{minted: a.minted}, 50) // another attempt with the token
		require.False(t, known.oldLocked(a.minted, sighting{asked: 1}))
		now := clock.Mono(100 + i)
		known.forgetLocked(a, now)
		require.Empty(t, known.used)
		require.True(t, known.oldLocked(a.minted, sighting{asked: now}))
		require.False(t, known.oldLocked(a.minted, sighting{asked: now + 1}))
		require.True(t, known.oldLocked(a.minted, message(tick, at)))
		require.False(t, known.oldLocked(a.minted, message(tick-1, at-1)), "it was handed the key anew, by a clock that is behind")
		require.False(t, known.oldLocked(a.minted, message(tick+1, at)), "it was handed the key anew")
		require.False(t, known.oldLocked(a.minted, message(tick, at+1)), "it was handed the key anew, by a register that has lost ticks")
	}
}

// TestTokenIsKnownByAllOfIt: others may make tokens with the number of another.
func TestTokenIsKnownByAllOfIt(t *testing.T) {
	t.Parallel()
	token, number := wire.NewMint().Token("api-7", wire.Queueing, 0)
	a := &attempt{id: identity{token: token}, minted: number}
	known := tokens{used: map[uint64]*attempt{number: a}}
	require.Same(t, a, known.of(token))
	for _, other := range []string{"", "somebody", token[:len(token)-1] + "x", wire.WriterMark + token, token[len("api-7/"):]} {
		require.Nil(t, known.of(other), other)
	}
}
