package redlatchgocron_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	redlatchgocron "github.com/redlatch/redlatch/gocron"
	"github.com/redlatch/redlatch/internal/testing/redistest"
	"github.com/redlatch/redlatch/redlatchtest"
)

const ttl = 3 * time.Second

// electors returns three Electors with the key "leader". They are closed when the test ends.
func electors(t *testing.T, l *redlatchtest.Locker) []*redlatchgocron.Elector {
	t.Helper()
	var all []*redlatchgocron.Elector
	for range 3 {
		mine, err := redlatch.NewSetNXPX(l.Client(), redlatch.WithTTL(ttl))
		require.NoError(t, err)
		e, err := redlatchgocron.NewElector(mine, "leader")
		require.NoError(t, err)
		t.Cleanup(func() { _ = e.Close() })
		all = append(all, e)
	}
	return all
}

// leading returns the Electors that lead.
func leading(t *testing.T, all []*redlatchgocron.Elector) (found []*redlatchgocron.Elector) {
	t.Helper()
	for _, e := range all {
		if err := e.IsLeader(t.Context()); err == nil {
			found = append(found, e)
		} else {
			require.ErrorIs(t, err, redlatchgocron.ErrNotLeader)
			require.NotContains(t, err.Error(), "\n")
		}
	}
	return found
}

// leaderWithin waits for a leader for up to d, and returns it. It requires that two never lead at
// once.
func leaderWithin(t *testing.T, d time.Duration, all []*redlatchgocron.Elector) *redlatchgocron.Elector {
	t.Helper()
	for start := time.Now(); time.Since(start) <= d; time.Sleep(d / 1000) {
		synctest.Wait()
		found := leading(t, all)
		require.LessOrEqual(t, len(found), 1)
		if len(found) == 1 {
			return found[0]
		}
	}
	require.FailNow(t, "nobody leads", "after %v", d)
	return nil
}

// nobodyLeadsFor requires that nobody leads until d has passed.
func nobodyLeadsFor(t *testing.T, d time.Duration, all []*redlatchgocron.Elector) {
	t.Helper()
	for start := time.Now(); time.Since(start) < d; time.Sleep(d / 1000) {
		require.Empty(t, leading(t, all))
	}
}

// TestLeaderRunsEachTick: of three instances, the leader runs all ticks. After its shutdown another
// one runs them.
func TestLeaderRunsEachTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := redlatchtest.NewLocker(t)
		all := electors(t, l)
		leader := leaderWithin(t, time.Second, all)
		var f fleet
		first := time.Now().Add(every)
		for i, e := range all {
			f.start(t, first.Add(time.Duration(i)*splay), nothing, gocron.WithDistributedElector(e))
		}
		time.Sleep(10*every + every/2)
		mine := slices.Index(all, leader)
		require.Equal(t, slices.Repeat([]int{mine}, 10), f.take())
		require.NoError(t, f.schedulers[mine].Shutdown())
		require.NoError(t, leader.Close())
		time.Sleep(10 * every)
		f.stop(t)
		runs := f.take()
		require.Len(t, runs, 10)
		require.NotEqual(t, mine, runs[0])
		require.Equal(t, slices.Repeat(runs[:1], 10), runs)
	})
}

// TestCloseHandsTheLeadOver: the next instance leads at once. A closed one never leads again.
func TestCloseHandsTheLeadOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := electors(t, redlatchtest.NewLocker(t))
		for range all {
			leader := leaderWithin(t, 10*time.Millisecond, all)
			require.NoError(t, leader.Close())
			require.ErrorIs(t, leader.IsLeader(t.Context()), redlatchgocron.ErrNotLeader)
			require.NoError(t, leader.Close())
		}
		nobodyLeadsFor(t, time.Minute, all)
	})
}

// TestClosedWaiterLeavesTheQueue: Close of an Elector that never led returns nil, and the lead goes
// to an open one.
func TestClosedWaiterLeavesTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := electors(t, redlatchtest.NewLocker(t))
		leader := leaderWithin(t, 10*time.Millisecond, all)
		var open []*redlatchgocron.Elector
		for _, e := range all {
			if e != leader && len(open) == 0 {
				open = append(open, e)
			} else if e != leader {
				require.NoError(t, e.Close())
			}
		}
		require.NoError(t, leader.Close())
		require.Same(t, open[0], leaderWithin(t, 10*time.Millisecond, all))
	})
}

// TestLostLeadGoesToAnother: IsLeader reports that the lead was lost once a renewal has found it.
// The next instance leads, and the one that lost the lead tries again.
func TestLostLeadGoesToAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := redlatchtest.NewLocker(t)
		all := electors(t, l)
		leader := leaderWithin(t, 10*time.Millisecond, all)
		l.Steal("leader")
		time.Sleep(ttl/3 + 10*time.Millisecond)
		err := leader.IsLeader(t.Context())
		require.ErrorIs(t, err, redlatchgocron.ErrNotLeader)
		require.ErrorIs(t, err, redlatch.ErrLost)
		nobodyLeadsFor(t, ttl, all)
		require.Equal(t, redlatchgocron.ErrNotLeader, leader.IsLeader(t.Context()), "somebody else leads now")

		l.Free("leader")
		next := leaderWithin(t, 5*time.Second, all)
		require.NotSame(t, leader, next)
		for _, e := range all {
			if e != leader {
				require.NoError(t, e.Close())
			}
		}
		require.Same(t, leader, leaderWithin(t, 10*time.Millisecond, all))
	})
}

// TestLeadEndsWithItsLease: an Elector whose lock is not renewed leads until the lease ends, and says
// why it does not.
func TestLeadEndsWithItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := redlatchtest.NewLocker(t)
		e, err := redlatchgocron.NewElector(l, "leader", redlatch.WithTTL(ttl), redlatch.WithoutRenewal())
		require.NoError(t, err)
		defer func() { _ = e.Close() }()
		leader := []*redlatchgocron.Elector{e}
		began := time.Now()
		leaderWithin(t, time.Second, leader)
		l.Disconnect()
		for time.Since(began) < ttl*9/10 {
			require.NoError(t, e.IsLeader(t.Context()))
			time.Sleep(ttl / 100)
		}
		time.Sleep(time.Until(began.Add(ttl)))
		err = e.IsLeader(t.Context())
		require.ErrorIs(t, err, redlatchgocron.ErrNotLeader)
		require.ErrorIs(t, err, redlatch.ErrLost)
	})
}

// TestCrashedLeaderCostsItsTTL: nobody leads before its TTL has passed, and soon after that one
// instance leads.
func TestCrashedLeaderCostsItsTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := redlatchtest.NewLocker(t)
		_, err := l.TryLock(t.Context(), "leader", redlatch.WithTTL(ttl), redlatch.WithoutRenewal()) // never released
		require.NoError(t, err)
		all := electors(t, l)
		nobodyLeadsFor(t, ttl, all)
		leaderWithin(t, 2*time.Second, all)
	})
}

// TestNobodyLeadsThroughAnOutage: the lead ends before its TTL has passed. IsLeader reports the
// outage for as long as it lasts, without waiting for Redis. Afterwards one instance leads.
func TestNobodyLeadsThroughAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := redlatchtest.NewLocker(t)
		all := electors(t, l)
		leader := leaderWithin(t, 10*time.Millisecond, all)
		l.Disconnect()
		time.Sleep(ttl)
		require.ErrorIs(t, leader.IsLeader(t.Context()), redlatch.ErrLost)
		time.Sleep(ttl)
		for range 60 {
			start := time.Now()
			for _, e := range all {
				err := e.IsLeader(t.Context())
				require.ErrorIs(t, err, redlatchgocron.ErrNotLeader)
				require.ErrorIs(t, err, redlatch.ErrUnavailable)
			}
			require.Zero(t, time.Since(start))
			time.Sleep(time.Second)
		}

		l.Reconnect()
		leaderWithin(t, 20*time.Second, all)
		time.Sleep(30 * time.Second)
		require.Len(t, leading(t, all), 1)
		for _, e := range all {
			if err := e.IsLeader(t.Context()); err != nil {
				require.NotErrorIs(t, err, redlatch.ErrUnavailable, "the outage is over")
			}
		}
	})
}

// TestCampaignOutlastsWhatRetryingCannotFix: while the key has data of another type, IsLeader
// returns that error. Once the data is deleted, one instance leads.
func TestCampaignOutlastsWhatRetryingCannotFix(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := redlatchtest.NewLocker(t)
		require.NoError(t, l.Client().LPush(t.Context(), "leader", "data").Err())
		all := electors(t, l)
		time.Sleep(time.Second)
		for range 60 {
			for _, e := range all {
				err := e.IsLeader(t.Context())
				require.ErrorIs(t, err, redlatchgocron.ErrNotLeader)
				require.ErrorContains(t, err, "WRONGTYPE")
			}
			time.Sleep(time.Second)
		}
		require.NoError(t, l.Client().Del(t.Context(), "leader").Err())
		leaderWithin(t, 20*time.Second, all)
	})
}

// TestEventsOfAnElectorAreThoseOfLead: so metrics tell its waits and holds from those that are too
// long.
func TestEventsOfAnElectorAreThoseOfLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := redlatchtest.NewLocker(t)
		l.Hold("leader")
		heard := make(chan redlatch.Event, 2)
		hear := func(_ context.Context, e redlatch.Event) { heard <- e }
		e, err := redlatchgocron.NewElector(l, "leader", redlatch.WithHooks(redlatch.Hooks{Waiting: hear, Acquired: hear}))
		require.NoError(t, err)
		require.True(t, (<-heard).Lead, "it waits")
		l.Free("leader")
		require.True(t, (<-heard).Lead, "it holds")
		require.NoError(t, e.Close())
	})
}

// TestCloseReportsWhatRedisDidNotConfirm: in an outage Close returns within the op timeouts. Its
// error says that the release was not confirmed.
func TestCloseReportsWhatRedisDidNotConfirm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := redlatchtest.NewLocker(t)
		all := electors(t, l)
		leader := leaderWithin(t, 10*time.Millisecond, all)
		l.Disconnect()
		start := time.Now()
		err := leader.Close()
		require.ErrorIs(t, err, redlatch.ErrUnavailable)
		require.Equal(t, err, leader.Close())
		require.Less(t, time.Since(start), time.Second)
	})
}

// TestLeadChangesHandsOnRedis: three Electors on a real Redis. Each time the leader is closed,
// another one leads.
func TestLeadChangesHandsOnRedis(t *testing.T) {
	client := redistest.Start(t).Client(t)
	acquired := make(chan int, 3)
	all := make([]*redlatchgocron.Elector, 3)
	for i := range all {
		l, err := redlatch.NewSetNXPX(client)
		require.NoError(t, err)
		all[i], err = redlatchgocron.NewElector(l, "leader",
			redlatch.WithHooks(redlatch.Hooks{Acquired: func(context.Context, redlatch.Event) { acquired <- i }}))
		require.NoError(t, err)
		t.Cleanup(func() { _ = all[i].Close() })
	}
	for range all {
		leader := <-acquired
		require.Eventually(t, func() bool { return all[leader].IsLeader(t.Context()) == nil }, time.Minute, time.Millisecond)
		found := leading(t, all)
		require.Len(t, found, 1)
		require.Same(t, all[leader], found[0])
		require.NoError(t, all[leader].Close())
	}
	require.Empty(t, leading(t, all))
}

// TestElectorPrintsWhetherItLeads, and if not, why: fmt would look into what changes.
func TestElectorPrintsWhetherItLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := electors(t, redlatchtest.NewLocker(t))
		leader := leaderWithin(t, time.Second, all)
		for _, e := range all {
			if e == leader {
				require.Equal(t, "leader", fmt.Sprintf("%s", e))
			} else {
				require.Equal(t, e.IsLeader(t.Context()).Error(), fmt.Sprintf("%s", e))
			}
		}
		require.NoError(t, leader.Close())
		require.Equal(t, leader.IsLeader(t.Context()).Error(), fmt.Sprint(leader))
	})
}
