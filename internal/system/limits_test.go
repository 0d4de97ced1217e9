package system_test

import (
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// No client can prevent the failures in these tests: two owners both trust their locks. The fence tells
// a resource which of them is the newer one. Failovers are in failover_test.go.

// twoOwners requires that both locks are trusted, and that the second has the higher fence if they
// have fences. The first owner's Unlock must leave the second lock alone.
func twoOwners(t *testing.T, first, second *redlatch.Lock) {
	t.Helper()
	require.NoError(t, first.Err())
	require.NoError(t, second.Err())
	if first.Fence() != 0 {
		require.Greater(t, second.Fence(), first.Fence())
	}
	require.ErrorIs(t, first.Unlock(t.Context()), redlatch.ErrLost)
	require.NoError(t, second.Extend(t.Context(), time.Minute))
	require.NoError(t, second.Unlock(t.Context()))
}

// TestUnpersistedRestartMakesTwoOwners: one server that keeps nothing on disk is restarted.
func TestUnpersistedRestartMakesTwoOwners(t *testing.T) {
	for name, strategy := range map[string]func(redis.UniversalClient, ...redlatch.Option) (redlatch.Locker, error){
		"SetNXPX": redlatch.NewSetNXPX, "LegacySetNX": redlatch.NewLegacySetNX,
	} {
		t.Run(name, func(t *testing.T) {
			s := redistest.Start(t)
			l, err := strategy(s.Client(t), locktest.LongTTL, redlatch.WithoutRenewal())
			require.NoError(t, err)
			first := locktest.MustLock(t, l, "k")
			s.Kill()
			s.Restart(t)
			twoOwners(t, first, locktest.MustLock(t, l, "k", redlatch.WithOpTimeout(10*time.Second)))
		})
	}
}

// TestForgetfulNodeVotesTwice: a lock is held on no more than a quorum of the nodes. One of them is
// restarted without its data and comes back at once.
func TestForgetfulNodeVotesTwice(t *testing.T) {
	t.Parallel()
	var servers []*redistest.Server
	var clients []redis.UniversalClient
	for range 3 {
		s := redistest.Start(t)
		servers, clients = append(servers, s), append(clients, s.Client(t))
	}
	l, err := redlatch.NewRedlock(clients, locktest.LongTTL, redlatch.WithoutRenewal(), redlatch.WithOpTimeout(10*time.Second))
	require.NoError(t, err)
	last := servers[2].Client(t)
	require.NoError(t, last.Set(t.Context(), "k", "another", time.Hour).Err())
	first := locktest.MustLock(t, l, "k")
	locktest.Eventually(t, "that node was asked too", func() bool {
		return strings.Contains(last.Info(t.Context(), "commandstats").Val(), "cmdstat_pttl")
	})
	require.NoError(t, last.Del(t.Context(), "k").Err())
	servers[1].Kill()
	servers[1].Restart(t)
	// Fences of a quorum start from whole seconds, so the restarted node votes for a higher fence in the
	// next second.
	<-time.After(time.Until(time.Now().Truncate(time.Second).Add(1010 * time.Millisecond)))
	twoOwners(t, first, locktest.MustLock(t, l, "k"))
}

// TestClockStepMakesTwoOwners: the clock of the server is stepped forward by an hour.
func TestClockStepMakesTwoOwners(t *testing.T) {
	m := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: m.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	l := locktest.SetNXPX(t, client, redlatch.WithoutRenewal())
	first := locktest.MustLock(t, l, "k")
	m.SetTime(time.Now().Add(time.Hour))
	m.FastForward(time.Hour)
	twoOwners(t, first, locktest.MustLock(t, l, "k"))
}
