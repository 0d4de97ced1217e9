package redlatch

import (
	"context"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// oneNode returns a node with an empty server behind it.
func oneNode(t *testing.T) (*miniredis.Miniredis, *node) {
	t.Helper()
	m := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: m.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	return m, newNode(client, 1)
}

func quorumClaim(fence uint64) *claim {
	at, _ := fencedPlace("k", false)
	return &claim{
		place: at, token: "mine", ttl: time.Minute, bound: time.Minute, fenced: true, fence: fence,
		trusted: func() bool { return true }, life: &life{},
	}
}

// TestRaiseNeedsTheLock: a node where the token does not hold the key acknowledges nothing, and its
// counter stays.
func TestRaiseNeedsTheLock(t *testing.T) {
	m, n := oneNode(t)
	for _, holder := range []string{"", "another"} {
		if holder != "" {
			require.NoError(t, m.Set("k", holder))
		}
		_, err := n.do(context.Background(), raise, quorumClaim(70), form{})
		require.ErrorIs(t, err, ErrLost)
		require.False(t, m.Exists("{k}:fence:k"))
	}
	require.NoError(t, m.Set("k", "mine"))
	for _, fence := range []uint64{70, 60} {
		g, err := n.do(context.Background(), raise, quorumClaim(fence), form{})
		require.NoError(t, err)
		require.Equal(t, uint64(70), g.fence, "a counter that is higher is told, and not lowered")
	}
}

// TestHealEndsWithTheLease is rule 11 on a quorum: nothing is healed once the lease has ended, or where
// somebody else has the key.
func TestHealEndsWithTheLease(t *testing.T) {
	m, n := oneNode(t)
	over := quorumClaim(70)
	over.trusted = func() bool { return false }
	_, err := n.do(context.Background(), heal, over, form{})
	require.Error(t, err)
	require.Empty(t, m.Keys())
	require.NoError(t, m.Set("k", "another"))
	_, err = n.do(context.Background(), heal, quorumClaim(70), form{})
	require.ErrorIs(t, err, ErrNotAcquired)
	m.Del("k")
	_, err = n.do(context.Background(), heal, quorumClaim(70), form{})
	require.NoError(t, err)
	m.CheckGet(t, "k", "mine")
	m.CheckGet(t, "{k}:fence:k", "70")
	require.Positive(t, m.TTL("k"))
}
