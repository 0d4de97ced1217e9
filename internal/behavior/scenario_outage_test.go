package behavior_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// TestStoppedServerIsLeftWithNothing: with 2,000 callers on a server that is stopped:
// half of them try to lock keys of their own, and half wait for one key. All calls return in time. When the
// server continues, locks are granted at once, and no key, place in the queue or goroutine is left.
func TestStoppedServerIsLeftWithNothing(t *testing.T) { // not parallel: it counts goroutines
	const callers, timeout, margin = 2000, 500 * time.Millisecond, 6 * time.Second
	s := redistest.Start(t)
	direct := s.Client(t)
	holder := mustLock(t, newLocker(t, direct), "held", longTTL)
	before := runtime.NumGoroutine()
	client := s.Client(t)
	l := newLocker(t, client, longTTL, redlatch.WithOpTimeout(timeout))
	waiting := make(chan struct{}, 1)
	granted := make(chan *redlatch.Lock, 1)
	go func() { // ends with the lock
		lock, err := l.Lock(context.Background(), "held", patience, redlatch.WithHooks(redlatch.Hooks{
			Waiting: func(redlatch.Event) { waiting <- struct{}{} },
		}))
		if err != nil {
			t.Error(err)
		}
		granted <- lock
	}()
	<-waiting
	eventually(t, "the waiter is in the queue", func() bool { return direct.ZCard(t.Context(), "{held}:queue:held").Val() == 1 })

	s.Pause()
	var wg sync.WaitGroup
	var most atomic.Int64
	for i := range callers {
		wg.Go(func() {
			begin := time.Now()
			var err error
			limit := timeout
			if i%2 == 0 {
				_, err = l.TryLock(t.Context(), fmt.Sprint("k", i))
			} else {
				limit = 2 * timeout
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				_, err = l.Lock(ctx, "held")
			}
			// A failed attempt waits for its release, for as long again.
			if took := time.Since(begin); err == nil || took > 2*limit+margin {
				t.Errorf("call %d ended after %v: %v", i, took, err)
			}
			most.Store(max(most.Load(), int64(runtime.NumGoroutine())))
		})
	}
	wg.Wait()
	require.Less(t, int(most.Load())-callers-before, 200)

	s.Resume()
	begin := time.Now()
	require.NoError(t, mustLock(t, l, "next", patience).Unlock(t.Context()))
	require.Less(t, time.Since(begin), 3*time.Second)
	require.NoError(t, holder.Unlock(t.Context()))
	lock := <-granted
	require.NotNil(t, lock)
	require.NoError(t, lock.Unlock(t.Context()))
	onlyFences(t, direct)
	require.NoError(t, client.Close())
	eventually(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before })
	onlyFences(t, direct)
}

// TestLockIsKeptWhereItsConnectionsGoSilent: open connections go silent, as behind a firewall that
// forgot them, while new ones work. The lock is still renewed.
func TestLockIsKeptWhereItsConnectionsGoSilent(t *testing.T) {
	t.Parallel()
	kept := func(t *testing.T, l redlatch.Locker, silence func()) {
		t.Helper()
		renewed := make(chan redlatch.Event, 1000)
		lock := locktest.LockSoon(t, l, "k", redlatch.WithTTL(6*time.Second), redlatch.WithHooks(redlatch.Hooks{
			Renewed: func(e redlatch.Event) { renewed <- e },
		}), redlatch.WithOpTimeout(600*time.Millisecond))
		silence()
		for range 2 {
			select {
			case <-renewed:
			case <-lock.Done():
				require.NoError(t, lock.Err())
			}
		}
		require.NoError(t, lock.Err())
		require.Greater(t, time.Until(lock.Until()), 2*time.Second)
		require.NoError(t, mustLock(t, l, "other").Unlock(t.Context()))
		require.NoError(t, lock.Unlock(t.Context()))
	}
	for _, timeout := range []time.Duration{0, -1} { // go-redis' default of 5 s, and none
		t.Run(fmt.Sprint("SetNXPX, ReadTimeout ", int(timeout)), func(t *testing.T) {
			t.Parallel()
			direct, p, _ := behindProxy(t)
			o := p.Options()
			o.ReadTimeout, o.WriteTimeout = timeout, timeout
			client := redis.NewClient(o)
			t.Cleanup(func() { _ = client.Close() })
			l := newLocker(t, client)
			var wg sync.WaitGroup
			for i := range 64 { // so that there are several connections
				wg.Go(func() {
					lock, err := l.TryLock(t.Context(), fmt.Sprint(i))
					if err == nil {
						err = lock.Unlock(t.Context())
					}
					if err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			kept(t, l, p.SilenceOpen)
			gone(t, direct, "k")
			p.Cut() // otherwise closing the client would wait for commands in flight
		})
		t.Run(fmt.Sprint("Redlock, three of five nodes, ReadTimeout ", int(timeout)), func(t *testing.T) {
			t.Parallel()
			n := newCluster(t)
			var clients []redis.UniversalClient
			for _, p := range n.proxies {
				o := p.Options()
				o.ReadTimeout, o.WriteTimeout = timeout, timeout
				client := redis.NewClient(o)
				t.Cleanup(func() { _ = client.Close() })
				clients = append(clients, client)
			}
			l, err := redlatch.NewRedlock(clients, patience)
			require.NoError(t, err)
			require.NoError(t, mustLock(t, l, "warm").Unlock(t.Context()))
			kept(t, l, func() {
				for _, p := range n.proxies[:3] {
					p.SilenceOpen()
				}
			})
			n.settled(t, "k")
			for _, p := range n.proxies {
				p.Cut()
			}
		})
	}
}

// TestUnlockIsBoundedWhereItsConnectionIsNew: several commands set up the connection, and each
// gets its reply just in time. The op timeout bounds all of them together.
func TestUnlockIsBoundedWhereItsConnectionIsNew(t *testing.T) {
	t.Parallel()
	for _, timeout := range []time.Duration{0, time.Second, -1} {
		t.Run(fmt.Sprint("ReadTimeout ", timeout), func(t *testing.T) {
			t.Parallel()
			_, p, _ := behindProxy(t)
			o := p.Options()
			o.DB, o.ClientName, o.ReadTimeout = 1, "me", timeout
			o.OnConnect = func(ctx context.Context, conn *redis.Conn) error { return conn.Ping(ctx).Err() }
			client := redis.NewClient(o)
			t.Cleanup(func() { _ = client.Close() })
			l := newLocker(t, client)
			require.NoError(t, mustLock(t, l, "warm").Unlock(t.Context())) // the scripts are loaded
			lock := mustLock(t, l, "k", redlatch.WithOpTimeout(time.Second), redlatch.WithoutRenewal())
			p.Cut()
			p.Delay(950 * time.Millisecond)
			begin := time.Now()
			err := lock.Unlock(t.Context())
			took := time.Since(begin)
			require.ErrorContains(t, err, "no reply within 1s")
			require.Less(t, took, 2500*time.Millisecond)
			p.Cut()
		})
	}
}

// TestUnlockOutlastsAScriptThatKeepsTheServerBusy: Redis refuses a release while another client's
// script runs for long, and carries it out afterwards.
func TestUnlockOutlastsAScriptThatKeepsTheServerBusy(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	direct, client := s.Client(t), s.Client(t)
	lock := mustLock(t, newLocker(t, client), "k", longTTL, redlatch.WithOpTimeout(15*time.Second))
	var refused atomic.Int64
	client.AddHook(redistest.OnProcess(func(next redis.ProcessHook) redis.ProcessHook {
		return func(ctx context.Context, cmd redis.Cmder) error {
			err := next(ctx, cmd)
			if redis.HasErrorPrefix(err, "BUSY") {
				refused.Add(1)
			}
			return err
		}
	}))
	require.NoError(t, direct.ConfigSet(t.Context(), "lua-time-limit", "20").Err())
	o := s.Options()
	o.ReadTimeout = -1
	other := redis.NewClient(o)
	t.Cleanup(func() { _ = other.Close() })
	ended := make(chan error, 1)
	go func() { ended <- other.Eval(context.Background(), "while true do end", nil).Err() }() // until it is killed
	eventually(t, "the server is busy", func() bool {
		return redis.HasErrorPrefix(direct.Ping(t.Context()).Err(), "BUSY")
	})
	unlocked := make(chan error, 1)
	go func() { unlocked <- lock.Unlock(context.Background()) }() // ends with its op timeout
	eventually(t, "the release was refused", func() bool { return refused.Load() > 1 })
	require.NoError(t, direct.ScriptKill(t.Context()).Err())
	require.Error(t, <-ended)
	require.NoError(t, <-unlocked)
	require.Zero(t, direct.Exists(t.Context(), "k").Val())
}

// TestWaitForReplicasHoldsUpNobodyElse: many attempts wait for a replica that does not exist. They
// do not hold up plain locks of the same Locker.
func TestWaitForReplicasHoldsUpNobodyElse(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	direct := s.Client(t)
	l := newLocker(t, s.Client(t), longTTL, redlatch.WithOpTimeout(20*time.Second))
	blocked := func() bool {
		info, err := direct.InfoMap(t.Context(), "clients").Result()
		require.NoError(t, err)
		return info["Clients"]["blocked_clients"] != "0"
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			_, err := l.TryLock(ctx, fmt.Sprint("replicated", i), redlatch.WithReplicas(1, 500*time.Millisecond))
			if !errors.Is(err, redlatch.ErrNotReplicated) && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
	eventually(t, "some attempts wait", blocked)
	var plain sync.WaitGroup
	for i := range 8 {
		plain.Go(func() {
			for range 5 {
				lock, err := l.TryLock(t.Context(), fmt.Sprint("plain", i))
				if err == nil {
					err = lock.Unlock(t.Context())
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	plain.Wait()
	eventually(t, "the other attempts still wait, for several seconds in all", blocked)
	cancel()
	wg.Wait()
	onlyFences(t, direct)
}

// TestCtxEndsALockAtAnyInstant: calls whose ctx ends at random instants under load return
// soon, and leave no key and no place in a queue.
func TestCtxEndsALockAtAnyInstant(t *testing.T) {
	t.Parallel()
	direct, p, client := behindProxy(t)
	l := newLocker(t, client, longTTL, redlatch.WithOpTimeout(20*time.Second))
	require.NoError(t, mustLock(t, l, "warm").Unlock(t.Context()))
	p.DelayFunc(func() time.Duration { return rand.N(2 * time.Millisecond) })
	var wg sync.WaitGroup
	var granted atomic.Int64
	for g := range 64 {
		wg.Go(func() {
			for i := range 100 {
				patience := rand.N(20 * time.Millisecond)
				if i%10 == 9 { // so that some calls are granted the lock on a busy machine
					patience *= 50
				}
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				lock := l.Lock
				if i%2 == 0 {
					lock = l.TryLock
				}
				got, err := lock(ctx, fmt.Sprint("k", rand.N(32)))
				if deadline, _ := ctx.Deadline(); time.Since(deadline) > 5*time.Second {
					t.Errorf("goroutine %d: it did not end with its ctx", g)
				}
				cancel()
				if err == nil {
					granted.Add(1)
					err = got.Unlock(ctx)
				}
				if err != nil && !errors.Is(err, redlatch.ErrNotAcquired) && !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.Positive(t, granted.Load())
	p.Heal()
	onlyFences(t, direct)
}
