package behavior_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
)

// TestChosenTokensDoNotKeepEachOtherOutWithADeadNode: two nodes of five are dead. A refused
// attempt does not extend a vote that its token already had, and releases its new votes. So all
// waiters are served.
func TestChosenTokensDoNotKeepEachOtherOutWithADeadNode(t *testing.T) {
	t.Parallel()
	n := newCluster(t)
	n.servers[3].Kill()
	n.servers[4].Kill()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	require.NoError(t, n.direct[0].Set(ctx, "k", "worker-0", 500*time.Millisecond).Err())
	require.NoError(t, n.direct[1].Set(ctx, "k", "worker-1", 500*time.Millisecond).Err())
	var wg sync.WaitGroup
	for i := range 3 {
		l := n.locker(t, false, redlatch.WithTTL(5*time.Second), briefly)
		opts := []redlatch.Option{redlatch.WithToken(fmt.Sprint("worker-", i))}
		if i == 2 {
			opts = nil
		}
		wg.Go(func() {
			lock, err := tryUntilGranted(ctx, l, opts...)
			if err == nil {
				err = lock.Unlock(ctx)
			}
			if err != nil {
				t.Error(i, err)
			}
		})
	}
	wg.Wait()
}

// TestNewVotesOfAChosenTokenAreGivenBack: a refused attempt releases its new votes. A vote that its token
// already had may belong to an earlier lock, and stays.
func TestNewVotesOfAChosenTokenAreGivenBack(t *testing.T) {
	t.Parallel()
	n := newCluster(t)
	n.servers[3].Kill()
	n.servers[4].Kill()
	l := n.locker(t, false)
	require.NoError(t, n.direct[0].Set(t.Context(), "k", "job-7", time.Hour).Err())
	require.NoError(t, n.direct[1].Set(t.Context(), "k", "another", time.Hour).Err())
	_, err := l.TryLock(t.Context(), "k", redlatch.WithToken("job-7"), briefly)
	require.ErrorIs(t, err, redlatch.ErrNotAcquired)
	gone(t, n.direct[2], "k")
	require.Equal(t, "job-7", n.direct[0].Get(t.Context(), "k").Val())
}

// TestRecoveredLockLastsForItsTTL: a token acquires its lock again. Its earlier votes would end
// before the new lease, so a quorum of them is extended.
func TestRecoveredLockLastsForItsTTL(t *testing.T) {
	t.Parallel()
	n := newCluster(t)
	l := n.locker(t, false)
	for _, c := range n.direct {
		require.NoError(t, c.Set(t.Context(), "k", "job-7", 5*time.Second).Err())
	}
	lock := mustLock(t, l, "k", redlatch.WithToken("job-7"), redlatch.WithoutRenewal())
	long := 0
	for _, c := range n.direct {
		if c.PTTL(t.Context(), "k").Val() > time.Until(lock.Until()) {
			long++
		}
	}
	require.GreaterOrEqual(t, long, 3)
	require.NoError(t, lock.Unlock(t.Context()))
}

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
