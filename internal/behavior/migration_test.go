package behavior_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
)

// newMigration returns a Locker that locks under from and to.
func newMigration(t *testing.T, from, to redlatch.Locker) redlatch.Locker {
	m, err := redlatch.NewMigration(from, to)
	require.NoError(t, err)
	return m
}

// A pair is two Lockers that a migration may join, each on servers of its own or under a prefix of its own.
type pair = func(t *testing.T, c []*redis.Client, v2 redlatch.Option) (from, to redlatch.Locker)

var pairs = map[string]pair{
	"another prefix": func(t *testing.T, c []*redis.Client, v2 redlatch.Option) (from, to redlatch.Locker) {
		return newLocker(t, c[0], longTTL), newLocker(t, c[0], longTTL, v2)
	},
	"another server": func(t *testing.T, c []*redis.Client, _ redlatch.Option) (from, to redlatch.Locker) {
		return newLocker(t, c[0], longTTL), newLocker(t, c[1], longTTL)
	},
	"LegacySetNX to SetNXPX": func(t *testing.T, c []*redis.Client, v2 redlatch.Option) (from, to redlatch.Locker) {
		return newLegacy(t, c[0], longTTL), newLocker(t, c[0], longTTL, v2)
	},
	"SetNXPX to Redlock": func(t *testing.T, c []*redis.Client, v2 redlatch.Option) (from, to redlatch.Locker) {
		return newLocker(t, c[0], longTTL), locktest.Redlock(t, c, longTTL, v2)
	},
	"Redlock to LegacySetNX": func(t *testing.T, c []*redis.Client, v2 redlatch.Option) (from, to redlatch.Locker) {
		return locktest.Redlock(t, c, longTTL), newLegacy(t, c[1], longTTL, v2)
	},
}

// threeServers returns clients of three servers.
func threeServers(t *testing.T) (clients []*redis.Client) {
	for range 3 {
		c := locktest.Closing(t, redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()}))
		clients = append(clients, c)
	}
	return clients
}

// TestMigrationHoldsUnderBoth: while a migration holds a key, neither of its Lockers grants it. After Unlock both do. If one side is
// held, the other side stays free, and no waiter stays in a queue. Its fences and those of to are one sequence.
func TestMigrationHoldsUnderBoth(t *testing.T) {
	t.Parallel()
	for name, pair := range pairs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers := threeServers(t)
			from, to := pair(t, servers, redlatch.WithKeyPrefix("v2:"))
			m, other := newMigration(t, from, to), newMigration(t, from, to)
			var last uint64
			for _, take := range []func(context.Context, string, ...redlatch.Option) (*redlatch.Lock, error){m.TryLock, m.Lock} {
				lock, err := take(t.Context(), "k")
				require.NoError(t, err)
				for _, side := range []redlatch.Locker{from, to, other} {
					_, err := side.TryLock(t.Context(), "k")
					requireOnly(t, err, redlatch.ErrNotAcquired)
				}
				require.NoError(t, lock.Unlock(t.Context()))
				for _, side := range []redlatch.Locker{from, to} {
					lock := mustLock(t, side, "k")
					_, err := m.TryLock(t.Context(), "k")
					requireOnly(t, err, redlatch.ErrNotAcquired)
					require.ErrorIs(t, locktest.WaitInVain(t, m, "k"), redlatch.ErrNotAcquired)
					eventually(t, "nobody waits", func() bool {
						st, err := m.Inspect(t.Context(), "k")
						return err == nil && st.Token == lock.Token() && st.Waiters == 0
					})
					require.NoError(t, lock.Unlock(t.Context()))
				}
				for _, l := range []redlatch.Locker{m, to} {
					lock := mustLock(t, l, "k")
					require.True(t, lock.Fence() > last || name == "Redlock to LegacySetNX")
					last = lock.Fence()
					require.NoError(t, lock.Unlock(t.Context()))
				}
			}
			onlyFences(t, servers...)
		})
	}
}

// TestMigrationOfOneKeyIsRefused: if both sides keep a key in the same place, the lock on from would refuse the lock on to forever.
func TestMigrationOfOneKeyIsRefused(t *testing.T) {
	t.Parallel()
	var c []*redis.Client
	for i := range 4 {
		client := locktest.Closing(t, redis.NewClient(&redis.Options{Addr: fmt.Sprintf("127.0.0.1:%d", 1+i)}))
		c = append(c, client)
	}
	v2 := redlatch.WithKeyPrefix("v2:")
	one, another := newLocker(t, c[0]), newLocker(t, c[1])
	for name, sides := range map[string][2]redlatch.Locker{
		"SetNXPX twice":                    {one, newLocker(t, c[0])},
		"LegacySetNX and SetNXPX":          {newLegacy(t, c[0]), one},
		"SetNXPX and Semaphore":            {one, newSemaphore(t, c[0], 2)},
		"one prefix twice":                 {newLocker(t, c[0], v2), newLegacy(t, c[0], v2)},
		"a node of a quorum":               {another, locktest.Redlock(t, c)},
		"quorums with a node in common":    {locktest.Redlock(t, c[:3]), locktest.Redlock(t, c[2:])},
		"a migration and one of its sides": {another, newMigration(t, one, another)},
		"migrations with a common side":    {newMigration(t, one, another), newMigration(t, newLocker(t, c[2]), newLegacy(t, c[0]))},
	} {
		for _, pair := range [][2]redlatch.Locker{sides, {sides[1], sides[0]}} {
			_, err := redlatch.NewMigration(pair[0], pair[1])
			requireOnly(t, err, redlatch.ErrInvalidOption, name)
			require.ErrorContains(t, err, "give one of them a WithKeyPrefix", name)
		}
	}
	newMigration(t, one, newLocker(t, c[0], v2))
	newMigration(t, locktest.Redlock(t, c[:1]), locktest.Redlock(t, c[1:]))
}

// TestMigrationTokenAndFenceAreThoseOfTo: if both sides hold the key, Inspect reports to, and else the side that does. The hooks of
// a side report the events of that side, in their order.
func TestMigrationTokenAndFenceAreThoseOfTo(t *testing.T) {
	t.Parallel()
	servers := threeServers(t)
	var heard []string
	side := func(name string) redlatch.Option {
		note := func(what string) func(redlatch.Event) {
			return func(e redlatch.Event) { heard = append(heard, fmt.Sprintf("%s %s %t", name, what, e.Err != nil)) }
		}
		return redlatch.WithHooks(redlatch.Hooks{
			Acquired: note("acquired"), Renewed: note("renewed"), Lost: note("lost"), Released: note("released"),
		})
	}
	from, to := newLocker(t, servers[0], longTTL, side("from")), newLocker(t, servers[1], longTTL, side("to"))
	m := newMigration(t, from, to)
	lock := mustLock(t, m, "k")
	require.Equal(t, "k", lock.Key())
	require.NotEqual(t, servers[0].Get(t.Context(), "k").Val(), lock.Token())
	require.Equal(t, servers[1].Get(t.Context(), "k").Val(), lock.Token())
	require.Equal(t, register(t, servers[1]), lock.Fence())
	st, err := m.Inspect(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, lock.Token(), st.Token)
	require.NoError(t, lock.Extend(t.Context(), 2*time.Hour))
	require.NoError(t, lock.Unlock(t.Context()))
	require.Equal(t, []string{
		"from acquired false", "to acquired false", "from renewed false", "to renewed false", "to released false", "from released false",
	}, heard)
	for _, side := range []redlatch.Locker{from, to} {
		alone := mustLock(t, side, "k")
		st, err := m.Inspect(t.Context(), "k")
		require.NoError(t, err)
		require.Equal(t, alone.Token(), st.Token)
		require.NoError(t, alone.Unlock(t.Context()))
	}
	_, err = m.Adopt(t.Context(), "k", "token") // one token cannot prove two locks
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.EqualError(t, err, `redlatch: adopt "k": unsupported operation`)
}

// TestMigrationRefusesWhatOneSideCannotServe: the call is refused before anything is sent to either side.
func TestMigrationRefusesWhatOneSideCannotServe(t *testing.T) {
	t.Parallel()
	var sent atomic.Int64
	servers := threeServers(t)
	for _, c := range servers {
		c.AddHook(locktest.Count(&sent))
	}
	legacy, plain := newLegacy(t, servers[0]), newLocker(t, servers[1])
	cluster := locktest.Closing(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}}))
	for name, c := range map[string]struct {
		m   redlatch.Locker
		key string
		opt redlatch.Option
	}{
		"a prefix in a call":      {newMigration(t, legacy, plain), "k", redlatch.WithKeyPrefix("v2:")},
		"an empty prefix":         {newMigration(t, legacy, plain), "k", redlatch.WithKeyPrefix("")},
		"an option of from alone": {newMigration(t, plain, legacy), "k", redlatch.WithMinHold(time.Second)},
		"an option of to alone":   {newMigration(t, legacy, plain), "k", redlatch.WithMinHold(time.Second)},
		"nested":                  {newMigration(t, newLocker(t, servers[2]), newMigration(t, legacy, plain)), "k", redlatch.WithMinHold(time.Second)},
		"a key of from alone":     {newMigration(t, plain, newLocker(t, cluster)), "a}b", longTTL},
	} {
		_, err := c.m.TryLock(t.Context(), c.key, c.opt)
		requireOnly(t, err, redlatch.ErrInvalidOption, name)
		_, err = c.m.Lock(t.Context(), c.key, c.opt)
		requireOnly(t, err, redlatch.ErrInvalidOption, name)
	}
	require.Zero(t, sent.Load())
	for from, to := range map[redlatch.Locker]redlatch.Locker{nil: plain, plain: nil, legacy: legacy} {
		_, err := redlatch.NewMigration(from, to)
		requireOnly(t, err, redlatch.ErrInvalidOption)
	}
}
