package behavior_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/faultproxy"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// onServers runs a test with three servers, on miniredis and on real Redis.
func onServers(t *testing.T, run func(t *testing.T, clients []*redis.Client)) {
	t.Run("miniredis", func(t *testing.T) {
		var clients []*redis.Client
		for range 3 {
			c := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
			t.Cleanup(func() { _ = c.Close() })
			clients = append(clients, c)
		}
		run(t, clients)
	})
	t.Run("redis", func(t *testing.T) {
		var clients []*redis.Client
		for range 3 {
			clients = append(clients, redistest.Start(t).Client(t))
		}
		run(t, clients)
	})
}

// keysOf returns the keys of all servers, by server.
func keysOf(t *testing.T, clients []*redis.Client) (all [][]string) {
	t.Helper()
	for _, c := range clients {
		keys, err := c.Keys(t.Context(), "*").Result()
		require.NoError(t, err)
		slices.Sort(keys)
		all = append(all, keys)
	}
	return all
}

// TestMigrationHoldsUnderBoth: while a migration holds a key, neither of its Lockers grants it. After Unlock both do.
func TestMigrationHoldsUnderBoth(t *testing.T) {
	t.Parallel()
	for name, pair := range locktest.Pairs {
		t.Run(name, func(t *testing.T) {
			onServers(t, func(t *testing.T, clients []*redis.Client) {
				from, to := pair(t, clients)
				for _, take := range []func(l redlatch.Locker) (*redlatch.Lock, error){
					func(l redlatch.Locker) (*redlatch.Lock, error) { return l.TryLock(t.Context(), "k") },
					func(l redlatch.Locker) (*redlatch.Lock, error) { return l.Lock(t.Context(), "k") },
				} {
					lock, err := take(newMigration(t, from, to))
					require.NoError(t, err)
					for _, side := range []redlatch.Locker{from, to, newMigration(t, from, to)} {
						_, err := side.TryLock(t.Context(), "k")
						require.ErrorIs(t, err, redlatch.ErrNotAcquired)
					}
					require.NoError(t, lock.Unlock(t.Context()))
					for _, side := range []redlatch.Locker{from, to} {
						require.NoError(t, mustLock(t, side, "k").Unlock(t.Context()))
					}
				}
				onlyFencesAreLeft(t, clients)
			})
		})
	}
}

// TestMigrationRefusedHalfWayLeavesNeither: if one side is held, the other side stays free, and no waiter stays in a
// queue.
func TestMigrationRefusedHalfWayLeavesNeither(t *testing.T) {
	t.Parallel()
	for name, pair := range locktest.Pairs {
		t.Run(name, func(t *testing.T) {
			onServers(t, func(t *testing.T, clients []*redis.Client) {
				from, to := pair(t, clients, longTTL)
				for holder, other := range map[redlatch.Locker]redlatch.Locker{from: to, to: from} {
					m := newMigration(t, from, to)
					held := mustLock(t, holder, "k")
					_, err := m.TryLock(t.Context(), "k")
					require.ErrorIs(t, err, redlatch.ErrNotAcquired)
					require.NoError(t, mustLock(t, other, "k").Unlock(t.Context()))

					require.ErrorIs(t, locktest.WaitInVain(t, m, "k"), redlatch.ErrNotAcquired)
					require.NoError(t, mustLock(t, other, "k").Unlock(t.Context()))
					eventually(t, "nobody waits", func() bool {
						st, err := m.Inspect(t.Context(), "k")
						require.NoError(t, err)
						require.True(t, st.Held)
						require.Equal(t, held.Token(), st.Token)
						return st.Waiters == 0
					})
					require.NoError(t, held.Unlock(t.Context()))
					require.NoError(t, mustLock(t, m, "k").Unlock(t.Context()))
				}
			})
		})
	}
}

// TestMigrationThatGetsNoAnswerLeavesNeither: if the replies of to are lost, from is released at once. The key that
// to may have acquired is released too.
func TestMigrationThatGetsNoAnswerLeavesNeither(t *testing.T) {
	t.Parallel()
	a, b := redistest.Start(t), redistest.Start(t)
	p := faultproxy.New(t, b.Network(), b.Addr())
	m := newMigration(t, newLocker(t, a.Client(t), longTTL),
		newLocker(t, p.Client(t), longTTL, redlatch.WithOpTimeout(time.Second)))
	require.NoError(t, mustLock(t, m, "warm").Unlock(t.Context()))
	for name, ask := range map[string]func(ctx context.Context, key string, opts ...redlatch.Option) (*redlatch.Lock, error){
		"TryLock": m.TryLock, "Lock": m.Lock,
	} {
		p.LoseReplies(1000, "evalsha")
		_, err := ask(t.Context(), "k")
		require.Error(t, err, name)
		require.NotErrorIs(t, err, redlatch.ErrNotAcquired, name)
		require.Zero(t, a.Client(t).Exists(t.Context(), "k").Val(), name)
		p.LoseReplies(0, "")
		gone(t, b.Client(t), "k")
		require.NoError(t, locktest.LockSoon(t, m, "k").Unlock(t.Context()))
	}
}

// TestMigrationRenewsBothAndEndsWithEither: on real servers, the lock ends when its key is deleted on one side. The
// key of the other side then expires.
func TestMigrationRenewsBothAndEndsWithEither(t *testing.T) {
	t.Parallel()
	servers := []*redis.Client{redistest.Start(t).Client(t), redistest.Start(t).Client(t)}
	for lost := range servers {
		var renewals [2]atomic.Int64
		var sides [2]redlatch.Locker
		for i, c := range servers {
			sides[i] = newLocker(t, c, redlatch.WithTTL(2*time.Second), redlatch.WithHooks(redlatch.Hooks{
				Renewed: func(redlatch.Event) { renewals[i].Add(1) },
			}))
		}
		lock := mustLock(t, newMigration(t, sides[0], sides[1]), "k")
		eventually(t, "two renewals of each", func() bool {
			require.NoError(t, lock.Err())
			return renewals[0].Load() >= 2 && renewals[1].Load() >= 2
		})
		require.NoError(t, servers[lost].Del(t.Context(), "k").Err())
		<-lock.Done()
		require.ErrorIs(t, lock.Err(), redlatch.ErrLost)
		gone(t, servers[1-lost], "k") // not renewed any more
		require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrLost)
	}
}

// TestMigrationOfOneKeyIsRefused: if both sides keep a key in the same place, the lock on from would refuse the lock
// on to forever.
func TestMigrationOfOneKeyIsRefused(t *testing.T) {
	var c []*redis.Client
	for i := range 4 {
		client := redis.NewClient(&redis.Options{Addr: fmt.Sprintf("127.0.0.1:%d", 1+i)})
		t.Cleanup(func() { _ = client.Close() })
		c = append(c, client)
	}
	v2 := redlatch.WithKeyPrefix("v2:")
	one, another := newLocker(t, c[0]), newLocker(t, c[1])
	for name, sides := range map[string][2]redlatch.Locker{
		"SetNXPX twice":                    {one, newLocker(t, c[0])},
		"LegacySetNX and SetNXPX":          {newLegacy(t, c[0]), one},
		"SetNXPX and Semaphore":            {one, locktest.Semaphore(t, c[0], 2)},
		"one prefix twice":                 {newLocker(t, c[0], v2), newLegacy(t, c[0], v2)},
		"a node of a quorum":               {another, locktest.Redlock(t, c)},
		"quorums with a node in common":    {locktest.Redlock(t, c[:3]), locktest.Redlock(t, c[2:])},
		"a migration and one of its sides": {another, newMigration(t, one, another)},
		"migrations with a common side":    {newMigration(t, one, another), newMigration(t, newLocker(t, c[2]), newLegacy(t, c[0]))},
	} {
		for _, pair := range [][2]redlatch.Locker{sides, {sides[1], sides[0]}} {
			_, err := redlatch.NewMigration(pair[0], pair[1])
			require.ErrorIs(t, err, redlatch.ErrInvalidOption, name)
			require.ErrorContains(t, err, "give one of them a WithKeyPrefix", name)
		}
	}
	newMigration(t, one, newLocker(t, c[0], v2))
	newMigration(t, locktest.Redlock(t, c[:1]), locktest.Redlock(t, c[1:]))
}

// onlyFencesAreLeft waits until the servers hold nothing but registers and counters: a release may still be in flight
// to a minority of a quorum.
func onlyFencesAreLeft(t *testing.T, clients []*redis.Client) {
	t.Helper()
	eventually(t, "only fences are left", func() bool {
		return !slices.ContainsFunc(slices.Concat(keysOf(t, clients)...), func(key string) bool { return !locktest.IsFence(key) })
	})
}

// TestMigrationTokenAndFenceAreThoseOfTo: a lock has the token and the fence of to. If both sides hold the key,
// Inspect reports to.
func TestMigrationTokenAndFenceAreThoseOfTo(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, clients []*redis.Client) {
		from, to := newLocker(t, clients[0]), newLocker(t, clients[1])
		m := newMigration(t, from, to)
		lock := mustLock(t, m, "k", redlatch.WithTTL(time.Hour))
		require.Equal(t, "k", lock.Key())
		require.NotEqual(t, clients[0].Get(t.Context(), "k").Val(), lock.Token())
		require.Equal(t, clients[1].Get(t.Context(), "k").Val(), lock.Token())
		st, err := to.Inspect(t.Context(), "k")
		require.NoError(t, err)
		require.Equal(t, lastFence(t, clients[1]), lock.Fence())
		both, err := m.Inspect(t.Context(), "k")
		require.NoError(t, err)
		require.InDelta(t, st.TTL, both.TTL, float64(time.Minute))
		both.TTL = st.TTL
		require.Equal(t, st, both)
		require.NoError(t, lock.Unlock(t.Context()))

		// If one side alone holds the key, Inspect reports that side.
		for _, side := range []redlatch.Locker{from, to} {
			alone := mustLock(t, side, "k")
			st, err := m.Inspect(t.Context(), "k")
			require.NoError(t, err)
			require.True(t, st.Held)
			require.Equal(t, alone.Token(), st.Token)
			require.NoError(t, alone.Unlock(t.Context()))
		}
	})
}

// TestMigrationAdoptIsUnsupported: one token cannot prove two locks.
func TestMigrationAdoptIsUnsupported(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = client.Close() })
	m := newMigration(t, newLocker(t, client), newLegacy(t, client, redlatch.WithKeyPrefix("v2:")))
	_, err := m.Adopt(t.Context(), "k", "token")
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.EqualError(t, err, `redlatch: adopt "k": unsupported operation`)
}

// TestMigrationRefusesWhatOneSideCannotServe: the call is refused before anything is sent to either side.
func TestMigrationRefusesWhatOneSideCannotServe(t *testing.T) {
	var sent atomic.Int64
	client := func() redis.UniversalClient {
		c := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
		c.AddHook(locktest.Count(&sent))
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	legacy, plain := newLegacy(t, client().(*redis.Client)), newLocker(t, client())
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	t.Cleanup(func() { _ = cluster.Close() })
	for name, c := range map[string]struct {
		m   redlatch.Locker
		key string
		opt redlatch.Option
	}{
		"a prefix in a call":      {newMigration(t, legacy, plain), "k", redlatch.WithKeyPrefix("v2:")},
		"an empty prefix":         {newMigration(t, legacy, plain), "k", redlatch.WithKeyPrefix("")},
		"an option of from alone": {newMigration(t, plain, legacy), "k", redlatch.WithMinHold(time.Second)},
		"an option of to alone":   {newMigration(t, legacy, plain), "k", redlatch.WithMinHold(time.Second)},
		"nested": {
			newMigration(t, newLocker(t, client()), newMigration(t, legacy, plain)), "k", redlatch.WithMinHold(time.Second),
		},
		"a key of from alone": {newMigration(t, plain, newLocker(t, cluster)), "a}b", longTTL},
	} {
		_, err := c.m.TryLock(t.Context(), c.key, c.opt)
		require.ErrorIs(t, err, redlatch.ErrInvalidOption, name)
		_, err = c.m.Lock(t.Context(), c.key, c.opt)
		require.ErrorIs(t, err, redlatch.ErrInvalidOption, name)
	}
	require.Zero(t, sent.Load())

	for from, to := range map[redlatch.Locker]redlatch.Locker{nil: plain, plain: nil, legacy: legacy} {
		_, err := redlatch.NewMigration(from, to)
		require.ErrorIs(t, err, redlatch.ErrInvalidOption)
	}
}

// TestMigrationHooksHearOfTheirOwnSide: the hooks of a side report the events of that side, in their order.
func TestMigrationHooksHearOfTheirOwnSide(t *testing.T) {
	onServers(t, func(t *testing.T, clients []*redis.Client) {
		var heard []string
		side := func(name string) redlatch.Option {
			note := func(what string) func(redlatch.Event) {
				return func(e redlatch.Event) {
					heard = append(heard, fmt.Sprintf("%s %s %t", name, what, e.Err != nil))
				}
			}
			return redlatch.WithHooks(redlatch.Hooks{
				Acquired: note("acquired"), Renewed: note("renewed"), Lost: note("lost"), Released: note("released"),
			})
		}
		m := newMigration(t, newLocker(t, clients[0], side("from")), newLocker(t, clients[1], side("to")))
		lock := mustLock(t, m, "k")
		require.NoError(t, lock.Extend(t.Context(), time.Hour))
		require.NoError(t, lock.Unlock(t.Context()))
		require.Equal(t, []string{
			"from acquired false", "to acquired false", "from renewed false", "to renewed false",
			"to released false", "from released false",
		}, heard)
	})
}

// TestMigrationOfMigrationsHoldsAll: a fleet starts its next migration before it has completed the last one.
func TestMigrationOfMigrationsHoldsAll(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, clients []*redis.Client) {
		var sides []redlatch.Locker
		for _, c := range clients {
			sides = append(sides, newLocker(t, c))
		}
		for _, m := range []redlatch.Locker{
			newMigration(t, sides[0], newMigration(t, sides[1], sides[2])),
			newMigration(t, newMigration(t, sides[0], sides[1]), sides[2]),
		} {
			lock, err := m.Lock(t.Context(), "k")
			require.NoError(t, err)
			for _, side := range sides {
				_, err := side.TryLock(t.Context(), "k")
				require.ErrorIs(t, err, redlatch.ErrNotAcquired)
			}
			require.Equal(t, clients[2].Get(t.Context(), "k").Val(), lock.Token())
			require.NoError(t, lock.Extend(t.Context(), time.Hour))
			for _, c := range clients {
				require.Greater(t, c.PTTL(t.Context(), "k").Val(), 50*time.Minute)
			}
			require.NoError(t, lock.Unlock(t.Context()))
			for _, side := range sides {
				held := mustLock(t, side, "k")
				_, err := m.TryLock(t.Context(), "k")
				require.ErrorIs(t, err, redlatch.ErrNotAcquired)
				require.NoError(t, held.Unlock(t.Context()))
			}
			require.NoError(t, mustLock(t, m, "k").Unlock(t.Context()))
		}
	})
}
