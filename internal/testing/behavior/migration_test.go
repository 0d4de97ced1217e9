package behavior_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/locktest"
)

// newMigration returns a Locker that locks under from and to.
func newMigration(t *testing.T, from, to redlatch.Locker) redlatch.Locker {
	m, err := redlatch.NewMigration(from, to)
	require.NoError(t, err)
	return m
}

// A pair is two Lockers that a migration may join, each on servers of its own or under a prefix of
// its own.
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

// threeServers returns clients of three servers, in a bubble.
func threeServers(t *testing.T, s *locktest.Site) (clients []*redis.Client) {
	for i := range 3 {
		clients = append(clients, locktest.NodeOf(t, s, i).Direct)
	}
	return clients
}

// TestMigrationHoldsUnderBoth: while a migration holds a key, neither of its Lockers grants it.
// After Unlock both do. If one side is held, the other side stays free, and no waiter stays in a
// queue. Its fences and those of to are one sequence.
func TestMigrationHoldsUnderBoth(t *testing.T) {
	t.Parallel()
	for name, pair := range pairs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
				servers := threeServers(t, s)
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
		})
	}
}

// TestMigrationOfOneKeyIsRefused: if both sides keep a key in the same place, the lock on from
// would refuse the lock on to forever.
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
		"one that is wrapped":              {&unwrapped{&unwrapped{one}}, one},
		"migrations with a common side":    {newMigration(t, one, another), newMigration(t, newLocker(t, c[2]), newLegacy(t, c[0]))},
	} {
		for _, pair := range [][2]redlatch.Locker{sides, {sides[1], sides[0]}} {
			_, err := redlatch.NewMigration(pair[0], pair[1])
			requireOnly(t, err, redlatch.ErrInvalid, name)
			require.ErrorContains(t, err, "give one of them a WithKeyPrefix", name)
		}
	}
	newMigration(t, one, newLocker(t, c[0], v2))
	newMigration(t, &unwrapped{nil}, one)
	newMigration(t, locktest.Redlock(t, c[:1]), locktest.Redlock(t, c[1:]))
}

// unwrapped is a Locker that wraps another one, and says so.
type unwrapped struct{ redlatch.Locker }

func (u *unwrapped) Unwrap() redlatch.Locker { return u.Locker }

// TestMigrationTokenAndFenceAreThoseOfTo: if both sides hold the key, Inspect reports to, and else
// the side that does. The hooks of a side report the events of that side, in their order.
func TestMigrationTokenAndFenceAreThoseOfTo(t *testing.T) {
	t.Parallel()
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		servers := threeServers(t, s)
		var heard []string
		side := func(name string) redlatch.Option {
			note := func(what string) func(context.Context, redlatch.Event) {
				return func(_ context.Context, e redlatch.Event) {
					heard = append(heard, fmt.Sprintf("%s %s %t", name, what, e.Err != nil))
				}
			}
			return redlatch.WithHooks(redlatch.Hooks{
				Acquired: note("acquired"), Renewed: note("renewed"), Lost: note("lost"), Released: note("released"),
			})
		}
		from, to := newLocker(t, servers[0], longTTL, side("from")), newLocker(t, servers[1], longTTL, side("to"))
		m := newMigration(t, from, to)
		lock := mustLock(t, m, "k")
		require.Equal(t, "k", lock.Key())
		require.NotEqual(t, servers[0].Get(t.Context(), "k").Val(), string(lock.Token()))
		require.Equal(t, servers[1].Get(t.Context(), "k").Val(), string(lock.Token()))
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
	})
}

// TestMigrationRefusesWhatOneSideCannotServe: the call is refused before anything is sent to either
// side.
func TestMigrationRefusesWhatOneSideCannotServe(t *testing.T) {
	t.Parallel()
	var sent atomic.Int64
	var servers []*redis.Client // that nobody listens at
	for i := range 3 {
		c := locktest.Closing(t, redis.NewClient(&redis.Options{Addr: fmt.Sprint("127.0.0.1:", 1+i)}))
		c.AddHook(locktest.Count(&sent))
		servers = append(servers, c)
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
		requireOnly(t, err, redlatch.ErrInvalid, name)
		_, err = c.m.Lock(t.Context(), c.key, c.opt)
		requireOnly(t, err, redlatch.ErrInvalid, name)
	}
	require.Zero(t, sent.Load())
	for from, to := range map[redlatch.Locker]redlatch.Locker{nil: plain, plain: nil, legacy: legacy} {
		_, err := redlatch.NewMigration(from, to)
		requireOnly(t, err, redlatch.ErrInvalid)
	}
}

// pairOf is a migration between two prefixes of one server, with a client for each side.
type pairOf struct {
	redlatch.Locker
	s        *locktest.Site
	from, to *locktest.Tap
}

// onPair runs a test with a migration in a bubble. The scripts of its sides are loaded.
func onPair(t *testing.T, run func(t *testing.T, p *pairOf), opts ...redlatch.Option) {
	t.Helper()
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		from, fromTap := locktest.Tapped(t, s)
		to, toTap := locktest.Tapped(t, s)
		m := made(redlatch.NewMigration(made(redlatch.NewSetNXPX(from, opts...)), made(redlatch.NewSetNXPX(to, redlatch.WithKeyPrefix("v2:")))))
		locktest.Warm(t, m)
		run(t, &pairOf{m, s, fromTap, toTap})
	})
}

// key returns the key of one side.
func (p *pairOf) key(side string) string { return map[string]string{"from": "k", "to": "v2:k"}[side] }

// tap returns the tap of one side.
func (p *pairOf) tap(side string) *locktest.Tap {
	return map[string]*locktest.Tap{"from": p.from, "to": p.to}[side]
}

// held returns how many sides have the key.
func (p *pairOf) held(t *testing.T) int64 {
	t.Helper()
	return p.s.Direct.Exists(t.Context(), "k", "v2:k").Val()
}

// TestMigrationEndsWithEither: the lock is lost when one of its sides is lost, by an answer, by
// silence, by WithMaxHold or when it is unlocked. The other side is not renewed any more, and
// Unlock releases both.
func TestMigrationEndsWithEither(t *testing.T) {
	for _, side := range []string{"from", "to"} {
		for how, within := range map[string]time.Duration{"deleted": 10 * time.Second / 3, "silent": 10 * time.Second} {
			t.Run(side+" "+how, func(t *testing.T) {
				onPair(t, func(t *testing.T, p *pairOf) {
					lock := mustLock(t, p, "k")
					ctx := lock.Context(t.Context())
					begin := time.Now()
					if how == "silent" {
						p.tap(side).Cut()
					} else {
						require.NoError(t, p.s.Direct.Del(t.Context(), p.key(side)).Err())
					}
					<-lock.Done()
					require.LessOrEqual(t, time.Since(begin), within)
					synctest.Wait()
					require.ErrorIs(t, lock.Err(), redlatch.ErrLost)
					require.ErrorIs(t, context.Cause(ctx), redlatch.ErrLost)
					require.ErrorIs(t, lock.Extend(t.Context(), time.Hour), redlatch.ErrLost)
					p.tap(side).Heal()
					time.Sleep(time.Second) // what is under way ends
					sent := p.from.Sent.Load() + p.to.Sent.Load()
					time.Sleep(10 * time.Second)
					require.Equal(t, sent, p.from.Sent.Load()+p.to.Sent.Load())
					require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrLost)
					require.Zero(t, p.held(t))
					require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrReleased)
				})
			})
		}
		t.Run("an Unlock that finds "+side+" gone", func(t *testing.T) {
			onPair(t, func(t *testing.T, p *pairOf) {
				lock := mustLock(t, p, "k")
				require.NoError(t, p.s.Direct.Del(t.Context(), p.key(side)).Err())
				require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrLost)
				require.Zero(t, p.held(t))
			})
		})
	}
}

// TestMigrationLastsAsLongAsBoth: Until is the earlier end of the two sides. Extend extends both,
// and WithMaxHold of one ends both.
func TestMigrationLastsAsLongAsBoth(t *testing.T) {
	for _, of := range [][]redlatch.Option{
		{redlatch.WithTTL(5 * time.Second), redlatch.WithMaxHold(time.Minute)}, {redlatch.WithTTL(20 * time.Second), redlatch.WithMaxHold(time.Minute)},
	} {
		onPair(t, func(t *testing.T, p *pairOf) {
			begin := time.Now()
			lock := mustLock(t, p, "k")
			require.LessOrEqual(t, lock.Until().Sub(begin), 10*time.Second)
			require.NoError(t, lock.Extend(t.Context(), time.Hour))
			require.Equal(t, begin.Add(time.Minute), lock.Until())
			require.Greater(t, p.s.Direct.TTL(t.Context(), "v2:k").Val(), 50*time.Minute)
			<-lock.Done()
			require.Equal(t, time.Minute, time.Since(begin))
			require.ErrorIs(t, lock.Err(), redlatch.ErrMaxHold)
			require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrMaxHold)
		}, of...)
	}
}

// TestMigrationStartsOverWhenFromIsLost: if from is lost while Lock waits for to, Lock acquires
// from again before it acquires to.
func TestMigrationStartsOverWhenFromIsLost(t *testing.T) {
	onPair(t, func(t *testing.T, p *pairOf) {
		to := made(redlatch.NewSetNXPX(p.s.Client(t), redlatch.WithKeyPrefix("v2:")))
		holder := mustLock(t, to, "k")
		got := locktest.Standing(t, p)
		was := p.s.Direct.Get(t.Context(), "k").Val()
		require.NotEmpty(t, was, "it holds from")
		require.NoError(t, p.s.Direct.Del(t.Context(), "k").Err())
		time.Sleep(4 * time.Second)
		require.NotContains(t, []string{"", was}, p.s.Direct.Get(t.Context(), "k").Val(), "it was lost, and acquired again")
		time.Sleep(time.Minute)
		require.Empty(t, got)
		require.NoError(t, holder.Unlock(t.Context()))
		lock := <-got
		require.NoError(t, lock.Err())
		require.NoError(t, lock.Unlock(t.Context()))
		require.Zero(t, p.held(t))
	})
}

// TestMigrationNeverGrantsWhatHalfIsLostOf: from ends when to is granted. TryLock returns ErrLost,
// and Lock starts over.
func TestMigrationNeverGrantsWhatHalfIsLostOf(t *testing.T) {
	onPair(t, func(t *testing.T, p *pairOf) {
		granted := 0
		slow := redlatch.WithHooks(redlatch.Hooks{Acquired: func(context.Context, redlatch.Event) {
			if granted++; granted == 2 {
				time.Sleep(500 * time.Millisecond) // of the bubble
			}
		}})
		_, err := p.TryLock(t.Context(), "k", slow)
		require.ErrorIs(t, err, redlatch.ErrLost)
		require.Zero(t, p.held(t))
		granted = 0
		lock, err := p.Lock(t.Context(), "k", slow)
		require.NoError(t, err)
		require.NoError(t, lock.Err())
		require.Equal(t, 4, granted)
		require.NoError(t, lock.Unlock(t.Context()))
		require.Zero(t, p.held(t))
	}, redlatch.WithoutRenewal(), redlatch.WithTTL(400*time.Millisecond))
}

// TestMigrationOfAMigration holds each key on all sides, and ends with each of them. One is a
// Locker of another package.
func TestMigrationOfAMigration(t *testing.T) {
	for _, lost := range []string{"v0:k", "k", "v2:k"} {
		onPair(t, func(t *testing.T, p *pairOf) {
			other := struct{ redlatch.Locker }{made(redlatch.NewSetNXPX(p.s.Client(t), redlatch.WithKeyPrefix("v0:")))}
			lock := mustLock(t, made(redlatch.NewMigration(other, p)), "k")
			require.NoError(t, lock.Err())
			require.Equal(t, int64(1), p.s.Direct.Del(t.Context(), lost).Val())
			<-lock.Done()
			require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrLost)
			require.Zero(t, p.held(t)+p.s.Direct.Exists(t.Context(), "v0:k").Val())
		})
	}
}

// TestMigrationThatFailsHalfWayLeavesNeither: if to is not granted, from is released and not
// renewed any more. If from is refused, to is not tried.
func TestMigrationThatFailsHalfWayLeavesNeither(t *testing.T) {
	for name, of := range map[string]struct {
		taken string
		want  error
	}{"to refuses": {"v2:k", redlatch.ErrNotAcquired}, "from refuses": {"k", redlatch.ErrNotAcquired}, "to is in trouble": {"", redlatch.ErrUnavailable}} {
		t.Run(name, func(t *testing.T) {
			onPair(t, func(t *testing.T, p *pairOf) {
				if of.taken == "" {
					p.to.Cut()
				} else {
					require.NoError(t, p.s.Direct.Set(t.Context(), of.taken, "a stranger", time.Hour).Err())
				}
				_, err := p.Inspect(t.Context(), "k")
				require.Equal(t, of.taken == "", errors.Is(err, redlatch.ErrUnavailable))
				tried := p.to.Sent.Load()
				_, err = p.TryLock(t.Context(), "k")
				require.ErrorIs(t, err, of.want)
				require.Equal(t, of.taken == "k", p.to.Sent.Load() == tried)
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				_, err = p.Lock(ctx, "k")
				require.ErrorIs(t, err, of.want)
				require.Equal(t, of.taken != "", errors.Is(err, context.DeadlineExceeded))
				time.Sleep(time.Minute)
				held := p.held(t)
				require.Equal(t, of.taken != "", held == 1, held)
			})
		})
	}
}

// TestMigrationWaitSaysHowItEnded: if ctx ends a wait, the error says so, even if from was lost
// just before.
func TestMigrationWaitSaysHowItEnded(t *testing.T) {
	onPair(t, func(t *testing.T, p *pairOf) {
		require.NoError(t, p.s.Direct.Set(t.Context(), "v2:k", "a stranger", time.Hour).Err())
		ctx, cancel := context.WithTimeout(t.Context(), 2100*time.Millisecond) // while the lost lock of from is released
		defer cancel()
		time.AfterFunc(time.Second, func() { p.from.Late(500 * time.Millisecond) })
		_, err := p.Lock(ctx, "k")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		require.NotErrorIs(t, err, redlatch.ErrLost)
		require.NotErrorIs(t, err, redlatch.ErrUnavailable)
		require.Equal(t, int64(1), p.held(t))
		p.from.Heal()
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = p.Lock(ctx, "k", redlatch.WithHooks(redlatch.Hooks{Acquired: func(context.Context, redlatch.Event) { time.Sleep(3 * time.Second) }}))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, redlatch.ErrLost, "from was lost before to was asked")
	}, redlatch.WithoutRenewal(), redlatch.WithTTL(2*time.Second), redlatch.WithOpTimeout(time.Second))
}

// TestMigrationThatFailsKeepsNobodyOut: from is acquired, and to is not. The minimum hold is that
// of a lock that a caller got.
func TestMigrationThatFailsKeepsNobodyOut(t *testing.T) {
	onPair(t, func(t *testing.T, p *pairOf) {
		require.NoError(t, p.s.Direct.Set(t.Context(), "v2:k", "a stranger", time.Hour).Err())
		_, err := p.TryLock(t.Context(), "k")
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = p.Lock(ctx, "k")
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		synctest.Wait() // until its entry has left the queue
		require.Equal(t, int64(1), p.held(t))
		require.NoError(t, p.s.Direct.Del(t.Context(), "v2:k").Err())
		require.NoError(t, mustLock(t, p, "k").Unlock(t.Context()))
	}, redlatch.WithMinHold(time.Hour))
}

// TestMigrationWhoseHookPanicsLeavesNeither: it is the hook of to that panics.
func TestMigrationWhoseHookPanicsLeavesNeither(t *testing.T) {
	onPair(t, func(t *testing.T, p *pairOf) {
		for name, lock := range map[string]func(context.Context, string, ...redlatch.Option) (*redlatch.Lock, error){
			"TryLock": p.TryLock, "Lock": p.Lock,
		} {
			n := 0
			panics := func(context.Context, redlatch.Event) {
				if n++; n == 2 {
					panic("hook")
				}
			}
			require.PanicsWithValue(t, "hook", func() {
				_, _ = lock(t.Context(), "k", redlatch.WithHooks(redlatch.Hooks{Acquired: panics}))
			}, name)
			require.Zero(t, p.held(t), name)
			n = 1
			k := mustLock(t, p, "k", redlatch.WithHooks(redlatch.Hooks{Released: panics}))
			require.PanicsWithValue(t, "hook", func() { _ = k.Unlock(t.Context()) }, name)
			require.Zero(t, p.held(t), name)
		}
	})
}

// TestIdleLocksCostNoGoroutine, also those of a migration. Unlock leaves none.
func TestIdleLocksCostNoGoroutine(t *testing.T) {
	onPair(t, func(t *testing.T, p *pairOf) {
		var locks []*redlatch.Lock
		for i := range 100 {
			locks = append(locks, mustLock(t, p, fmt.Sprint(i)))
		}
		synctest.Wait()
		held := runtime.NumGoroutine()
		for _, lock := range locks[1:] {
			require.NoError(t, lock.Unlock(t.Context()))
		}
		synctest.Wait()
		require.InDelta(t, held, runtime.NumGoroutine(), 20, "other tests may start or end some")
		require.NoError(t, locks[0].Unlock(t.Context()))
	})
}
