package behavior_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
)

func TestEndedCtxSendsNothing(t *testing.T) {
	n := newCluster(t)
	l := n.locker(t, true)
	lock := mustLock(t, l, "k")
	sent := func() (requests int) {
		for _, p := range n.proxies {
			requests += p.Requests()
		}
		return requests
	}
	eventually(t, "all nodes have the key", func() bool { return n.have(t, "k") == 5 })
	before := sent()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 {
		_, err := l.TryLock(ctx, "another")
		require.ErrorIs(t, err, context.Canceled)
		_, err = l.Inspect(ctx, "k")
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, lock.Extend(ctx, time.Hour), context.Canceled)
	}
	require.NoError(t, lock.Unlock(t.Context()), "its commands follow all others")
	require.LessOrEqual(t, sent(), before+len(n.proxies))
}

// TestHungNodeDelaysNoInspect: Inspect does not wait for a hung node if the key is free or held on a quorum
// of the others.
func TestHungNodeDelaysNoInspect(t *testing.T) {
	t.Parallel()
	n := newCluster(t)
	l := n.locker(t, true, redlatch.WithOpTimeout(20*time.Second))
	n.proxies[4].Silence()
	begin := time.Now()
	st, err := l.Inspect(t.Context(), "k")
	require.NoError(t, err)
	require.Zero(t, st)
	for _, c := range n.direct[1:4] {
		require.NoError(t, c.Set(t.Context(), "k", "a token", time.Hour).Err())
	}
	st, err = l.Inspect(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, "a token", st.Token)
	require.Less(t, time.Since(begin), 10*time.Second)
}

// TestDeadQuorumIsTroubleWhileItIsGivenBack: ctx ends while the votes of two slow nodes are
// released. The error is still ErrNoQuorum.
func TestDeadQuorumIsTroubleWhileItIsGivenBack(t *testing.T) {
	t.Parallel()
	n := newCluster(t)
	l := n.locker(t, true, redlatch.WithOpTimeout(1500*time.Millisecond))
	for _, p := range n.proxies[2:] {
		p.Refuse()
	}
	for _, p := range n.proxies[:2] {
		p.Delay(1200 * time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2100*time.Millisecond)
	defer cancel()
	_, err := l.Lock(ctx, "k")
	require.ErrorIs(t, err, redlatch.ErrNoQuorum)
	require.NotErrorIs(t, err, redlatch.ErrNotAcquired)
}

// TestLostReplyIsNoRecovery: an acquire that is sent again finds its own vote. That vote lasts for its TTL,
// so it is not extended.
func TestLostReplyIsNoRecovery(t *testing.T) {
	direct, p, client := behindProxy(t)
	l, err := redlatch.NewRedlock([]redis.UniversalClient{client}, longTTL)
	require.NoError(t, err)
	require.NoError(t, mustLock(t, l, "warm").Unlock(t.Context()))
	require.NoError(t, direct.ConfigResetStat(t.Context()).Err())
	p.LoseReplies(1, "evalsha")
	mustLock(t, l, "k", redlatch.WithoutRenewal())
	require.Equal(t, 1, p.Lost())
	stats := direct.InfoMap(t.Context(), "commandstats").Item("Commandstats", "cmdstat_evalsha")
	require.Contains(t, stats, "calls=2,")
}
