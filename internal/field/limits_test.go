package field_test

import (
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/locktest"
	"github.com/redlatch/redlatch/internal/testing/redistest"
)

// No client can prevent the failures in these tests: two owners both trust their locks. The fence
// tells a resource which of them is the newer one. Failovers are in failover_test.go.

// TestLostKeyMakesTwoOwners: one server that keeps nothing on disk is restarted, or somebody
// deletes the key, or the clock of the server is stepped forward by an hour.
func TestLostKeyMakesTwoOwners(t *testing.T) {
	t.Parallel()
	s, m := redistest.Start(t), miniredis.RunT(t)
	for _, c := range []struct {
		client *redis.Client
		lose   func()
	}{
		{s.Client(t), func() { s.Kill(); s.Restart(t) }},
		{s.Client(t), func() { s.Client(t).Del(t.Context(), "k") }},
		{clientOf(t, m), func() { m.SetTime(time.Now().Add(time.Hour)); m.FastForward(time.Hour) }},
	} {
		l := locktest.SetNXPX(t, c.client, redlatch.WithTTL(time.Minute), redlatch.WithoutRenewal())
		first := locktest.MustLock(t, l, "k")
		c.lose()
		locktest.Eventually(t, "the client is connected", func() bool { return connected(t, c.client) })
		second := locktest.MustLock(t, l, "k")
		require.NoError(t, first.Err())
		require.Greater(t, second.Fence(), first.Fence())
		require.ErrorIs(t, first.Unlock(t.Context()), redlatch.ErrLost, "it leaves the second lock alone")
		require.NoError(t, second.Extend(t.Context(), time.Minute))
		require.NoError(t, second.Unlock(t.Context()))
	}
}

// clientOf returns a client of a miniredis.
func clientOf(t *testing.T, m *miniredis.Miniredis) *redis.Client {
	return locktest.Closing(t, redis.NewClient(&redis.Options{Addr: m.Addr()}))
}

// TestLockersOfDifferentNodesDoNotExclude: a quorum can be formed without the one node of another
// Locker. So a fleet cannot migrate by adding nodes, one process after the other. Their fences have
// no order either: those of one node follow the clock, and those of a quorum the last whole second.
func TestLockersOfDifferentNodesDoNotExclude(t *testing.T) {
	t.Parallel()
	var nodes []*redis.Client
	for range 3 {
		m := miniredis.RunT(t)
		m.SetTime(time.Date(2026, time.January, 1, 12, 0, 0, 900_000_000, time.UTC))
		nodes = append(nodes, clientOf(t, m))
	}
	one := locktest.MustLock(t, locktest.SetNXPX(t, nodes[0]), "k")
	three := locktest.MustLock(t, locktest.Redlock(t, nodes), "k")
	require.NoError(t, one.Err())
	require.NoError(t, three.Err(), "two owners")
	require.Less(t, three.Fence(), one.Fence(), "of the later grant")
}
