package redlatch

import (
	"fmt"
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
	known := tokens{used: make(map[string]*attempt)}
	stamp := func() uint64 {
		s, _, made := mint.Made(mint.Token("", wire.Queueing, 0))
		require.True(t, made)
		return s
	}
	var spared []uint64
	for i := range 1000 {
		before, s := stamp(), stamp()
		known.spare(s)
		spared = append(spared, s)
		for _, old := range spared {
			require.True(t, known.sparesStamp(old))
		}
		require.False(t, known.sparesStamp(stamp()))
		if i < len(known.spared)-1 {
			require.False(t, known.sparesStamp(before), "there is room for all that were spared")
		}
	}
}

// TestOldSightingsAreNoGhosts: a refusal that was on its way when the token was released, and the message with which it
// was granted.
func TestOldSightingsAreNoGhosts(t *testing.T) {
	t.Parallel()
	known := tokens{used: make(map[string]*attempt)}
	message := func(tick uint64, at clock.Redis) sighting {
		return sighting{message: &wire.HandOver{Tick: tick, At: at}}
	}
	for i := range 200 {
		tick, at := uint64(1000+i), clock.Redis(5000+i)
		a := &attempt{id: identity{token: fmt.Sprint(i)}, grant: grant{tick: tick, handed: at}}
		known.used[a.id.token] = a
		known.forget(&attempt{id: a.id}, 50) // another attempt with the token
		require.False(t, known.old(a.id.token, sighting{asked: 1}))
		now := clock.Mono(100 + i)
		known.forget(a, now)
		require.Empty(t, known.used)
		require.True(t, known.old(a.id.token, sighting{asked: now}))
		require.False(t, known.old(a.id.token, sighting{asked: now + 1}))
		require.True(t, known.old(a.id.token, message(tick, at)))
		require.True(t, known.old(a.id.token, message(tick-1, at-1)))
		require.False(t, known.old(a.id.token, message(tick+1, at)), "it was handed the key anew")
		require.False(t, known.old(a.id.token, message(tick, at+1)), "it was handed the key anew, by a register that has lost ticks")
	}
}
