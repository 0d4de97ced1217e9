package system_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

const (
	crashTTL = 10 * time.Second

	// claim is how long a key belongs to a process that was handed it, before that has to extend it.
	claim = 2 * time.Second

	// look is the longest time between two looks of a waiter.
	look = 2 * time.Second
)

// A site is a strategy, and one server or the masters of a cluster. Processes are given it as a word.
type site struct {
	strategy string
	addrs    []string
}

func (s site) String() string { return s.strategy + "@" + strings.Join(s.addrs, ",") }

// siteOf returns the site that this process was given. It reports false if this is the test itself.
func siteOf() (s site, ok bool) {
	strategy, addrs, ok := strings.Cut(locktest.Part(), "@")
	return site{strategy, strings.Split(addrs, ",")}, ok
}

// dial returns a client of the site.
func (s site) dial(t *testing.T) redis.UniversalClient {
	c := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: s.addrs})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// locker returns a Locker with a client of its own, as another process would have.
func (s site) locker(t *testing.T, opts ...redlatch.Option) redlatch.Locker {
	opts = append([]redlatch.Option{redlatch.WithTTL(crashTTL)}, opts...)
	if s.strategy == "Semaphore" {
		return locktest.Mutex(t, s.dial(t), opts...)
	}
	return locktest.SetNXPX(t, s.dial(t), opts...)
}

// listeners returns how many channels of Lockers have subscribers.
func (s site) listeners(t *testing.T) (n int) {
	for _, addr := range s.addrs {
		n += len(site{addrs: []string{addr}}.dial(t).PubSubChannels(t.Context(), "redlatch:*").Val())
	}
	return n
}

// onServerAndCluster runs a test with strategies, each on one server and on a cluster of three masters.
func onServerAndCluster(t *testing.T, strategies []string, run func(t *testing.T, s site, cluster bool)) {
	t.Helper()
	for _, strategy := range strategies {
		t.Run(strategy+" on one server", func(t *testing.T) {
			t.Parallel()
			run(t, site{strategy, []string{redistest.StartTCP(t).Addr()}}, false)
		})
		t.Run(strategy+" on a cluster", func(t *testing.T) {
			t.Parallel()
			_, addrs := startCluster(t)
			run(t, site{strategy, addrs}, true)
		})
	}
}

// bothQueues are the strategies whose waiters queue.
var bothQueues = []string{"SetNXPX", "Semaphore"}

// worked is how long two processes take for 30 locks each. It fails after the limit.
func worked(t *testing.T, s site, limit time.Duration) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	begin := time.Now()
	var wg sync.WaitGroup
	for range 2 {
		l := s.locker(t)
		wg.Go(func() {
			for i := range 30 {
				lock, err := l.Lock(ctx, "k")
				if err == nil {
					err = lock.Unlock(t.Context())
				}
				if err != nil {
					t.Errorf("after %d locks and %v, with a limit of %v: %v", i, time.Since(begin), limit, err)
					return
				}
			}
		})
	}
	wg.Wait()
	return time.Since(begin)
}

// TestKilledWaitersCostNothing: 20 Lockers wait before others in the queue when their process is killed. Each of them has a
// client and a channel of its own, so Redis sees 20 processes. On one server it knows that nobody listens on their
// channels: all of them together cost nothing. On a cluster each of them costs a claim, and not a TTL.
func TestKilledWaitersCostNothing(t *testing.T) {
	t.Parallel()
	if s, ok := siteOf(); ok {
		waiters := 0
		_, err := fmt.Fscan(os.Stdin, &waiters)
		require.NoError(t, err)
		for range waiters {
			locktest.WaitInLine(t, s.locker(t), "k")
		}
		locktest.Say("waits")
		_, _ = io.Copy(io.Discard, os.Stdin) // until it is killed, or the test ends
		return
	}
	onServerAndCluster(t, bothQueues, func(t *testing.T, s site, cluster bool) {
		waiters, limit := 20, 1500*time.Millisecond
		if cluster {
			if testing.Short() {
				waiters = 5
			}
			const notice = claim / 8 // until a waiter looks after the claim has ended
			limit = time.Duration(waiters)*(claim+notice) + 2*time.Second
		}
		holder := locktest.MustLock(t, s.locker(t), "k")
		child := locktest.Start(t, s.String())
		_, err := fmt.Fprintln(child.In, waiters)
		require.NoError(t, err)
		require.Equal(t, "waits", <-child.Said)
		child.Kill()
		locktest.Eventually(t, "Redis has noticed", func() bool { return s.listeners(t) == 0 })
		require.NoError(t, holder.Unlock(t.Context()))
		t.Logf("%d killed waiters cost %v", waiters, worked(t, s, limit))
	})
}

// TestFrozenWaiterCostsAClaim: a process is stopped while it waits, and is handed the key. PUBLISH still counts it as
// listening. That costs others a claim and a look, and not a TTL. When it continues, it is served.
func TestFrozenWaiterCostsAClaim(t *testing.T) {
	t.Parallel()
	if s, ok := siteOf(); ok {
		got := locktest.WaitInLine(t, s.locker(t), "k")
		locktest.Say("waits")
		lock := <-got
		require.NotNil(t, lock)
		locktest.Say("served", lock.Unlock(t.Context()))
		return
	}
	onServerAndCluster(t, bothQueues, func(t *testing.T, s site, _ bool) {
		holder := locktest.MustLock(t, s.locker(t), "k")
		child := locktest.Start(t, s.String())
		require.Equal(t, "waits", <-child.Said)
		locktest.Eventually(t, "it listens", func() bool { return s.listeners(t) == 1 })
		child.Freeze(t)
		require.NoError(t, holder.Unlock(t.Context()))
		t.Logf("a frozen waiter costs %v", worked(t, s, claim+look+time.Second))
		child.Continue(t)
		require.Equal(t, "served <nil>", <-child.Said)
		child.Wait(t)
	})
}

// TestCrashLoopLeavesWorkersTheirRate: every 500 ms a process is killed while it waits, for 15 s. On one server two
// workers keep half of their rate meanwhile. On a cluster they have the rate of before within 30 s after the last crash.
func TestCrashLoopLeavesWorkersTheirRate(t *testing.T) { // not parallel: it compares rates
	if s, ok := siteOf(); ok {
		beDoomed(t, s)
		return
	}
	onServerAndCluster(t, []string{"SetNXPX"}, func(t *testing.T, s site, cluster bool) {
		if cluster && testing.Short() {
			t.Skip("it takes most of a minute")
		}
		const lasts, every = 15 * time.Second, 500 * time.Millisecond
		ctx, cancel := context.WithCancel(t.Context())
		var workers sync.WaitGroup
		defer workers.Wait()
		defer cancel()
		var work grants
		for range 2 {
			l := s.locker(t)
			workers.Go(func() { work.hold(ctx, t, l, 20*time.Millisecond) })
		}
		begin := time.Now()
		elapsed := func(d time.Duration) func() bool { return func() bool { return time.Since(begin) >= d } }
		locktest.Eventually(t, "the workers have worked for some time", elapsed(4*time.Second))
		before := work.rate(begin, time.Now())

		crashing := time.Now()
		killed := 0
		tick := time.NewTicker(every)
		defer tick.Stop()
		next := locktest.Start(t, s.String())
		for time.Since(crashing) < lasts {
			doomed := next
			_, err := fmt.Fprintln(doomed.In, "go")
			require.NoError(t, err)
			next = locktest.Start(t, s.String()) // it is ready when its turn comes
			for line := range doomed.Said {
				t.Log("a doomed process: ", line)
			}
			doomed.Kill()
			killed++
			<-tick.C
		}
		next.Kill()
		ended := time.Now()
		during := work.rate(crashing, ended)
		t.Logf("%d processes were killed; %.1f locks a second before, %.1f meanwhile", killed, before, during)
		require.Greater(t, killed, 15)
		if !cluster {
			require.Greater(t, during, before/2)
			return
		}
		const window = 3 * time.Second
		back := func() bool {
			now := time.Now()
			return now.Sub(ended) >= window && work.rate(now.Add(-window), now) >= before*8/10
		}
		for !back() && time.Since(ended) < 30*time.Second+window {
			<-time.After(50 * time.Millisecond)
		}
		t.Logf("after %v, %.1f locks a second", time.Since(ended)-window, work.rate(time.Now().Add(-window), time.Now()))
		require.Less(t, time.Since(ended), 30*time.Second+window, "the rate of before is not back")
	})
}

// beDoomed is a process that kills itself while it waits, when another waiter is before it in the queue.
func beDoomed(t *testing.T, s site) {
	client := s.dial(t)
	self, err := os.FindProcess(os.Getpid())
	require.NoError(t, err)
	input := bufio.NewReader(os.Stdin)
	_, err = input.ReadString('\n')
	require.NoError(t, err)
	// These goroutines end with the process.
	go func() {
		_, _ = input.ReadString('\n') // the test has ended
		_ = self.Kill()
	}()
	name := fmt.Sprintf("doomed-%d/", os.Getpid())
	l := s.locker(t, redlatch.WithOwner(strings.TrimSuffix(name, "/")))
	go func() {
		for ; ; <-time.After(time.Millisecond) {
			place := slices.IndexFunc(client.ZRange(t.Context(), "{k}:queue:k", 0, -1).Val(), func(entry string) bool {
				return strings.Contains(entry, name)
			})
			if place > 0 {
				_ = self.Kill()
			}
		}
	}()
	for {
		lock, err := l.Lock(t.Context(), "k")
		if err == nil {
			err = lock.Unlock(t.Context())
		}
		if err != nil {
			locktest.Say(err)
		}
	}
}

// grants are the times at which locks were granted.
type grants struct {
	mu sync.Mutex // guards the fields below
	at []time.Time
}

// hold locks k again and again until ctx ends.
func (g *grants) hold(ctx context.Context, t *testing.T, l redlatch.Locker, d time.Duration) {
	for ctx.Err() == nil {
		lock, err := l.Lock(ctx, "k")
		if err != nil {
			if ctx.Err() == nil {
				t.Error(err)
			}
			return
		}
		g.mu.Lock()
		g.at = append(g.at, time.Now())
		g.mu.Unlock()
		<-time.After(d)
		if err := lock.Unlock(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	}
}

// rate returns how many locks a second were granted from begin to end.
func (g *grants) rate(begin, end time.Time) float64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := 0
	for _, at := range g.at {
		if at.After(begin) && at.Before(end) {
			n++
		}
	}
	return float64(n) / end.Sub(begin).Seconds()
}
