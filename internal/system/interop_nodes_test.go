package system_test

import (
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
)

// TestLockersOfDifferentNodesDoNotExclude: a quorum can be formed without the one node of another
// Locker, or without a quorum of its fewer nodes. So a fleet cannot migrate by adding nodes, one
// process after the other.
func TestLockersOfDifferentNodesDoNotExclude(t *testing.T) {
	client := func(server *miniredis.Miniredis) redis.UniversalClient {
		c := redis.NewClient(&redis.Options{Addr: server.Addr()})
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	var nodes []redis.UniversalClient
	for range 5 {
		nodes = append(nodes, client(miniredis.RunT(t)))
	}
	dead := miniredis.RunT(t)
	unreachable := client(dead)
	dead.Close()
	quorum := func(nodes ...redis.UniversalClient) redlatch.Locker {
		l, err := redlatch.NewRedlock(nodes, locktest.Patience)
		require.NoError(t, err)
		return l
	}
	t.Run("one node, then three", func(t *testing.T) {
		one := locktest.MustLock(t, locktest.SetNXPX(t, nodes[0]), "a")
		three := locktest.MustLock(t, quorum(nodes[:3]...), "a")
		require.NoError(t, one.Err())
		require.NoError(t, three.Err(), "two owners")
	})
	t.Run("three nodes, then five", func(t *testing.T) {
		three := locktest.MustLock(t, quorum(nodes[0], nodes[1], unreachable), "b") // the third is away for a moment
		five := locktest.MustLock(t, quorum(nodes...), "b")
		require.NoError(t, three.Err())
		require.NoError(t, five.Err(), "two owners")
	})
}

// TestFencesOfDifferentLockersHaveNoOrder: the fences of one node follow the clock, and those of a quorum the last whole second. So
// a later grant of another Locker may have a lower fence.
func TestFencesOfDifferentLockersHaveNoOrder(t *testing.T) {
	client := func() redis.UniversalClient {
		server := miniredis.RunT(t)
		server.SetTime(time.Date(2026, time.January, 1, 12, 0, 0, 900_000_000, time.UTC))
		c := redis.NewClient(&redis.Options{Addr: server.Addr()})
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	quorum, err := redlatch.NewRedlock([]redis.UniversalClient{client(), client(), client()})
	require.NoError(t, err)
	before := locktest.MustLock(t, locktest.SetNXPX(t, client()), "k")
	require.NoError(t, before.Unlock(t.Context()))
	after := locktest.MustLock(t, quorum, "k")
	require.NoError(t, after.Unlock(t.Context()))
	require.Less(t, after.Fence(), before.Fence())
}
