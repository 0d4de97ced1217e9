package redlatch

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/redistest"
)

// oneNode returns a node with an empty server behind it.
func oneNode(t *testing.T) (*miniredis.Miniredis, *redis.Client, *node.Node) {
	t.Helper()
	m := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: m.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	return m, client, node.New(client)
}

// mine returns the lock on k with the token "mine".
func mine() target {
	at, _ := (&redlock{}).place("", "k")
	return target{place: at, token: "mine", timeout: time.Minute}
}

// TestRaiseNeedsTheLock: a node where the token does not hold the key refuses to raise its counter.
func TestRaiseNeedsTheLock(t *testing.T) {
	m, _, n := oneNode(t)
	raise := func(fence uint64) (uint64, error) {
		lock := mine()
		return readRaise(n.Do(t.Context(), raiseCall(&lock, fence)))
	}
	for _, holder := range []string{"", "another"} {
		if holder != "" {
			require.NoError(t, m.Set("k", holder))
		}
		_, err := raise(70)
		require.ErrorIs(t, err, ErrLost)
		require.False(t, m.Exists("{k}:fence:k"))
	}
	require.NoError(t, m.Set("k", "mine"))
	for _, fence := range []uint64{70, 60} {
		counter, err := raise(fence)
		require.NoError(t, err)
		require.Equal(t, uint64(70), counter, "a higher counter is returned, and not lowered")
	}
}

// TestHealEndsWithTheLease is rule 11 on a quorum: nothing is healed once the lease has ended, or where
// somebody else has the key.
func TestHealEndsWithTheLease(t *testing.T) {
	m, _, n := oneNode(t)
	e := scriptedLocker(t, &scripted{})
	lock := granted(t, e, WithTTL(time.Minute))
	r := &redlock{} // without a node
	p := healOf(lock)
	p.target, p.fence = mine(), 70
	require.NoError(t, m.Set("k", "another"))
	_, err := readHeal(n.Do(t.Context(), timed(healCall(p, p.ttl))))
	require.ErrorIs(t, err, ErrNotAcquired)
	m.Del("k")
	_, err = readHeal(n.Do(t.Context(), timed(healCall(p, p.ttl))))
	require.NoError(t, err)
	m.CheckGet(t, "k", "mine")
	m.CheckGet(t, "{k}:fence:k", "70")
	require.Positive(t, m.TTL("k"))

	require.Panics(t, func() { r.healOn(t.Context(), 0, p) })
	require.NoError(t, lock.Unlock(t.Context()))
	require.NotPanics(t, func() { r.healOn(t.Context(), 0, p) }, "nothing is sent to a node")
}

// TestNoHealFollowsTheReleaseOfUnlock is rule 11 on a quorum: Unlock begins while a node is being healed.
func TestNoHealFollowsTheReleaseOfUnlock(t *testing.T) {
	t.Parallel()
	m, client, _ := oneNode(t)
	l, err := NewRedlock([]redis.UniversalClient{client}, WithTTL(time.Hour))
	require.NoError(t, err)
	require.NoError(t, granted(t, l).Unlock(t.Context()), "the scripts are loaded")
	require.NoError(t, client.ScriptLoad(t.Context(), healSource).Err())
	lock := granted(t, l)
	m.Del("k")
	unlocked := make(chan error, 1)
	p := healOf(lock)
	p.whileHeld = func(post func(left time.Duration)) {
		lock.lease.whileHeld(func(left time.Duration) {
			go func() { unlocked <- lock.Unlock(context.Background()) }()
			select {
			case err := <-unlocked:
				unlocked <- err
			case <-time.After(200 * time.Millisecond): // Unlock waits for the heal to be posted
			}
			post(left)
		})
	}
	l.(*engine).strategy.(*redlock).healOn(t.Context(), 0, p)
	require.NoError(t, <-unlocked, "it has released what was healed")
	require.False(t, m.Exists("k"))
}

// TestHealThatIsOvertakenIsReleased is rule 4 on a quorum: Unlock waits no longer than half of its timeout for a
// heal, which is carried out after its release, and in time.
func TestHealThatIsOvertakenIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, client := bubbleRedis(t)
		l, err := NewRedlock([]redis.UniversalClient{client}, WithTTL(time.Hour), WithOpTimeout(4*time.Second))
		require.NoError(t, err)
		require.NoError(t, granted(t, l).Unlock(t.Context()), "the scripts are loaded")
		require.NoError(t, client.ScriptLoad(t.Context(), healSource).Err())
		lock := granted(t, l)
		m.Del("k")
		var scripts atomic.Int64
		client.AddHook(redistest.OnProcess(func(next redis.ProcessHook) redis.ProcessHook {
			return func(ctx context.Context, cmd redis.Cmder) error {
				if scripts.Add(1) == 1 {
					time.Sleep(3 * time.Second) // of the bubble
				}
				return next(ctx, cmd)
			}
		}))
		l.(*engine).strategy.(*redlock).healOn(t.Context(), 0, healOf(lock))
		require.ErrorIs(t, lock.Unlock(t.Context()), ErrLost)
		require.Equal(t, int64(2), scripts.Load())
		time.Sleep(2 * time.Second)
		require.False(t, m.Exists("k"))
		require.Equal(t, int64(3), scripts.Load(), "the heal was carried out, and released")
	})
}

// timed returns c with a timeout.
func timed(c *node.Call) *node.Call {
	c.Timeout = time.Minute
	return c
}

// TestReleaseFollowsItsAcquireOnAQuorum is rule 4: a failed attempt is released only after its acquire has returned.
// If the acquire ran after the release, nobody would release its vote.
func TestReleaseFollowsItsAcquireOnAQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, client := bubbleRedis(t)
		l, err := NewRedlock([]redis.UniversalClient{client}, WithOpTimeout(time.Minute))
		require.NoError(t, err)
		require.NoError(t, granted(t, l).Unlock(t.Context()), "the scripts are loaded")
		var scripts atomic.Int64
		underWay, goesOn := make(chan struct{}), make(chan struct{})
		client.AddHook(redistest.OnProcess(func(next redis.ProcessHook) redis.ProcessHook {
			return func(ctx context.Context, cmd redis.Cmder) error {
				if scripts.Add(1) == 1 {
					close(underWay)
					<-goesOn
				}
				return next(context.WithoutCancel(ctx), cmd)
			}
		}))
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-underWay; cancel() }()
		_, err = l.TryLock(ctx, "k")
		require.ErrorIs(t, err, context.Canceled)
		synctest.Wait()
		close(goesOn)
		synctest.Wait()
		require.True(t, m.Exists("{k}:fence:k"), "the acquire has run")
		require.False(t, m.Exists("k"))
	})
}

// TestLateVoteOfAChosenTokenIsLeft is rule 4: a late vote for a chosen token is not released, since the caller may
// want to recover the lock that the token already holds.
func TestLateVoteOfAChosenTokenIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, client := bubbleRedis(t)
		l, err := NewRedlock([]redis.UniversalClient{client}, WithOpTimeout(time.Second))
		require.NoError(t, err)
		require.NoError(t, granted(t, l).Unlock(t.Context()), "the scripts are loaded")
		var scripts atomic.Int64
		client.AddHook(redistest.OnProcess(func(next redis.ProcessHook) redis.ProcessHook {
			return func(ctx context.Context, cmd redis.Cmder) error {
				if scripts.Add(1) == 1 {
					<-ctx.Done()
					return gaveUpReading.Err
				}
				return next(ctx, cmd)
			}
		}))
		require.NoError(t, m.Set("k", "job-7"))
		_, err = l.TryLock(t.Context(), "k", WithToken("job-7"))
		require.ErrorIs(t, err, ErrNoQuorum)
		time.Sleep(time.Minute)
		m.CheckGet(t, "k", "job-7")
	})
}

// TestLateVoteOfALostLockIsReleased is rule 4: an acquire that nobody waited for runs only after the lease has
// ended. Its vote is released.
func TestLateVoteOfALostLockIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var servers []*miniredis.Miniredis
		var clients []redis.UniversalClient
		goesOn := make(chan struct{})
		for i := range 3 {
			m, client := bubbleRedis(t)
			servers, clients = append(servers, m), append(clients, client)
			if i == 2 {
				var commands atomic.Int64
				client.AddHook(redistest.OnProcess(func(next redis.ProcessHook) redis.ProcessHook {
					return func(ctx context.Context, cmd redis.Cmder) error {
						if cmd.Name() == "evalsha" && commands.Add(1) == 1 {
							<-goesOn
						}
						return next(ctx, cmd)
					}
				}))
			}
		}
		l, err := NewRedlock(clients, WithOpTimeout(time.Hour), WithTTL(time.Hour), WithoutRenewal())
		require.NoError(t, err)
		lock := granted(t, l)
		for _, m := range servers[:2] {
			m.Del("k")
		}
		require.ErrorIs(t, lock.Extend(t.Context(), time.Hour), ErrLost)
		require.False(t, servers[2].Exists("k"))
		close(goesOn)
		synctest.Wait()
		require.True(t, servers[2].Exists("{k}:fence:k"), "the acquire has run")
		require.False(t, servers[2].Exists("k"))
	})
}
