package system_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/faultproxy"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// stops are ways to stop a server for some time.
var stops = map[string]func(t *testing.T, s *redistest.Server, d time.Duration){
	"SIGSTOP": func(t *testing.T, s *redistest.Server, d time.Duration) {
		s.Pause()
		goesOn := time.AfterFunc(d, s.Resume)
		t.Cleanup(func() { goesOn.Stop() })
	},
	"DEBUG SLEEP": func(t *testing.T, s *redistest.Server, d time.Duration) {
		o := s.Options()
		o.ReadTimeout = 2 * d
		client := redis.NewClient(o)
		t.Cleanup(func() { _ = client.Close() })
		require.NoError(t, client.Ping(t.Context()).Err())
		go func() { _ = client.Do(context.Background(), "debug", "sleep", d.Seconds()).Err() }() // ends with the sleep
	},
	"CLIENT PAUSE": func(t *testing.T, s *redistest.Server, d time.Duration) {
		require.NoError(t, s.Client(t).Do(t.Context(), "client", "pause", d.Milliseconds(), "write").Err())
	},
}

// TestStoppedServerKeepsNoLock: a server is stopped while 200 calls of TryLock are under way, whose callers wait for 200 ms. What
// it comes to when it goes on is too late, or is released. No key stays for more than a second. With REDLATCH_SOAK set, it is
// stopped for longer, too.
func TestStoppedServerKeepsNoLock(t *testing.T) {
	t.Parallel()
	lengths := []time.Duration{3 * time.Second}
	if os.Getenv("REDLATCH_SOAK") != "" {
		lengths = append(lengths, 12*time.Second, 30*time.Second)
	}
	strategies := map[string]struct {
		nodes, stopped int
		made           func(clients []redis.UniversalClient) (redlatch.Locker, error)
	}{
		"SetNXPX": {1, 1, func(c []redis.UniversalClient) (redlatch.Locker, error) {
			return redlatch.NewSetNXPX(c[0], redlatch.WithTTL(time.Minute))
		}},
		"Semaphore": {1, 1, func(c []redis.UniversalClient) (redlatch.Locker, error) {
			return redlatch.NewSemaphore(c[0], 3, redlatch.WithTTL(time.Minute))
		}},
		"LegacySetNX": {1, 1, func(c []redis.UniversalClient) (redlatch.Locker, error) {
			return redlatch.NewLegacySetNX(c[0], redlatch.WithTTL(time.Minute))
		}},
		"Redlock": {5, 2, func(c []redis.UniversalClient) (redlatch.Locker, error) {
			return redlatch.NewRedlock(c, redlatch.WithTTL(time.Minute))
		}},
	}
	for name, strategy := range strategies {
		for how, stop := range stops {
			for _, d := range lengths {
				t.Run(fmt.Sprintf("%s, %s for %v", name, how, d), func(t *testing.T) {
					t.Parallel()
					var servers []*redistest.Server
					var clients []redis.UniversalClient
					for range strategy.nodes {
						s := redistest.Start(t, "--enable-debug-command", "yes")
						servers, clients = append(servers, s), append(clients, s.Client(t))
					}
					l, err := strategy.made(clients)
					require.NoError(t, err)
					require.NoError(t, locktest.LockSoon(t, l, "warm").Unlock(t.Context()))
					for _, s := range servers[:strategy.stopped] {
						stop(t, s, d)
					}
					tryMany(t, l)
					for _, s := range servers {
						o := s.Options()
						o.ReadTimeout = 2 * d
						patient := redis.NewClient(o)
						require.NoError(t, patient.Set(t.Context(), "it goes on", "", 0).Err())
						require.NoError(t, patient.Close())
					}
					require.EventuallyWithT(t, func(c *assert.CollectT) {
						for _, s := range servers {
							assert.Empty(c, s.Client(t).Keys(t.Context(), "k*").Val())
						}
					}, time.Second, 50*time.Millisecond)
				})
			}
		}
	}
}

// tryMany has 200 callers try to lock a key each, for 200 ms. It unlocks what they get.
func tryMany(t *testing.T, l redlatch.Locker) {
	t.Helper()
	var callers sync.WaitGroup
	for i := range 200 {
		callers.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			if lock, err := l.TryLock(ctx, fmt.Sprint("k", i)); err == nil {
				_ = lock.Unlock(t.Context())
			}
		})
	}
	callers.Wait()
}

// clockServer starts a server whose clock can be set: it is off by as much as the function that clockServer returns says.
func clockServer(t *testing.T) (s *redistest.Server, set func(time.Duration)) {
	t.Helper()
	dir := t.TempDir()
	lib, offset := filepath.Join(dir, "clock.so"), filepath.Join(dir, "offset")
	set = func(d time.Duration) {
		next := offset + ".next"
		require.NoError(t, os.WriteFile(next, fmt.Append(nil, d.Microseconds()), 0o600))
		require.NoError(t, os.Rename(next, offset))
	}
	set(0)
	out, err := exec.CommandContext(t.Context(), "cc", "-shared", "-fPIC", "-O2", "-o", lib, "testdata/clock.c", "-ldl").CombinedOutput()
	require.NoError(t, err, string(out))
	binary := os.Getenv("REDLATCH_REDIS_SERVER")
	if binary == "" {
		binary = "redis-server"
	}
	wrapper := filepath.Join(dir, "redis-server")
	script := fmt.Sprintf("#!/bin/sh\nCLOCK_OFFSET=%s LD_PRELOAD=%s exec %s \"$@\"\n", offset, lib, binary)
	require.NoError(t, os.WriteFile(wrapper, []byte(script), 0o700)) //nolint:gosec // it is run
	t.Setenv("REDLATCH_REDIS_SERVER", wrapper)
	return redistest.StartTCP(t), set
}

// onOneServer are the strategies, with one server.
var onOneServer = map[string]func(redis.UniversalClient, ...redlatch.Option) (redlatch.Locker, error){
	"SetNXPX": redlatch.NewSetNXPX,
	"Semaphore": func(c redis.UniversalClient, opts ...redlatch.Option) (redlatch.Locker, error) {
		return redlatch.NewSemaphore(c, 1, opts...)
	},
	"LegacySetNX": redlatch.NewLegacySetNX,
	"Redlock": func(c redis.UniversalClient, opts ...redlatch.Option) (redlatch.Locker, error) {
		return redlatch.NewRedlock([]redis.UniversalClient{c}, opts...)
	},
}

// requireGrants locks and unlocks a key, and then another. The first lock may take one more trip, and the second may not.
func requireGrants(t *testing.T, l redlatch.Locker, sent *atomic.Int64, key, what string) {
	t.Helper()
	for i, most := range []int64{2, 1} {
		before := sent.Load()
		lock, err := l.TryLock(t.Context(), fmt.Sprint(key, i))
		require.NoError(t, err, what)
		require.LessOrEqual(t, sent.Load()-before, most, what)
		require.NoError(t, lock.Unlock(t.Context()), what)
	}
}

// TestClockOfRedisRefusesNoLock: the first command of a Locker, a clock of Redis that is set forward or back, and a failover to a
// server with another clock cost one more trip at most. So does a round trip of 300 ms, with the usual op timeout.
func TestClockOfRedisRefusesNoLock(t *testing.T) {
	s, set := clockServer(t)
	other := redistest.StartTCP(t) // with the same clock
	for name, made := range onOneServer {
		for _, step := range []time.Duration{5 * time.Second, -5 * time.Second} {
			t.Run(fmt.Sprintf("%s, %v", name, step), func(t *testing.T) {
				set(0)
				p := faultproxy.New(t, s.Network(), s.Addr())
				client := p.Client(t)
				sent := redistest.CountScripts(client)
				l, err := made(client)
				require.NoError(t, err)
				require.NoError(t, client.Ping(t.Context()).Err())
				for _, s := range []*redistest.Server{s, other} {
					require.NoError(t, s.Client(t).FlushAll(t.Context()).Err())
				}
				key := fmt.Sprint(name, step)
				requireGrants(t, l, sent, key+" first ", "the first command")
				loadScripts(t, made, other)
				set(step)
				requireGrants(t, l, sent, key+" step ", "the clock was set")
				for i, to := range []*redistest.Server{other, s} { // whose clocks differ
					p.PointAt(to.Network(), to.Addr())
					p.Cut()
					require.Eventually(t, func() bool { return client.Ping(t.Context()).Err() == nil }, 5*time.Second, time.Millisecond)
					requireGrants(t, l, sent, fmt.Sprint(key, " failover ", i, " "), "failover")
				}
				set(0)
				requireGrants(t, l, sent, key+" back ", "the clock was set back")
				p.Delay(300 * time.Millisecond)
				requireGrants(t, l, sent, key+" slow ", "a slow link")
			})
		}
	}
}

// loadScripts loads the scripts of a strategy.
func loadScripts(t *testing.T, made func(redis.UniversalClient, ...redlatch.Option) (redlatch.Locker, error), s *redistest.Server) {
	t.Helper()
	l, err := made(s.Client(t))
	require.NoError(t, err)
	require.NoError(t, locktest.LockSoon(t, l, "warm").Unlock(t.Context()))
}
