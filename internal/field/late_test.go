package field_test

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
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/faultproxy"
	"github.com/redlatch/redlatch/internal/testing/locktest"
	"github.com/redlatch/redlatch/internal/testing/redistest"
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
		client := locktest.Closing(t, redis.NewClient(o))
		require.NoError(t, client.Ping(t.Context()).Err())
		go func() { _ = client.Do(context.Background(), "debug", "sleep", d.Seconds()).Err() }() // ends with the sleep
	},
	"CLIENT PAUSE": func(t *testing.T, s *redistest.Server, d time.Duration) {
		require.NoError(t, s.Client(t).Do(t.Context(), "client", "pause", d.Milliseconds(), "write").Err())
	},
}

// TestStoppedServerKeepsNoLock: a server is stopped while 100 calls of TryLock of each strategy are
// under way, whose callers wait for 200 ms. What it comes to when it goes on is too late, or is
// released. No key stays for its TTL. Of five nodes two are stopped. With REDLATCH_SOAK set, they
// are stopped for longer, too.
func TestStoppedServerKeepsNoLock(t *testing.T) {
	t.Parallel()
	lengths := []time.Duration{3 * time.Second}
	if os.Getenv("REDLATCH_SOAK") != "" {
		lengths = append(lengths, 12*time.Second, 30*time.Second)
	}
	for how, stop := range stops {
		for _, d := range lengths {
			t.Run(fmt.Sprintf("%s for %v", how, d), func(t *testing.T) {
				t.Parallel()
				var servers []*redistest.Server
				var nodes []redis.UniversalClient
				for range 5 {
					s := redistest.Start(t, "--enable-debug-command", "yes")
					servers, nodes = append(servers, s), append(nodes, s.Client(t))
				}
				var lockers []redlatch.Locker
				for name, open := range locktest.Strategies {
					if name == "Redlock" {
						open = func(_ redis.UniversalClient, opts ...redlatch.Option) (redlatch.Locker, error) {
							return redlatch.NewRedlock(nodes, opts...)
						}
					}
					l, err := open(servers[0].Client(t), locktest.LongTTL, redlatch.WithKeyPrefix(name+":"))
					require.NoError(t, err)
					require.NoError(t, locktest.LockSoon(t, l, "warm").Unlock(t.Context()))
					lockers = append(lockers, l)
				}
				for _, s := range servers[:2] {
					stop(t, s, d)
				}
				tryMany(t, lockers)
				for _, s := range servers {
					o := s.Options()
					o.ReadTimeout = 2 * d
					patient := redis.NewClient(o)
					require.NoError(t, patient.Set(t.Context(), "it goes on", "", 0).Err())
					require.NoError(t, patient.Close())
				}
				for _, s := range servers {
					client := s.Client(t)
					locktest.Eventually(t, "no key stays", func() bool {
						keys, err := client.Keys(t.Context(), "[A-Z]*:k*").Result()
						return err == nil && len(keys) == 0
					})
				}
			})
		}
	}
}

// tryMany has 100 callers of each Locker try to lock a key each, for 200 ms. It unlocks what they
// get.
func tryMany(t *testing.T, lockers []redlatch.Locker) {
	t.Helper()
	var callers sync.WaitGroup
	for i := range 100 * len(lockers) {
		callers.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			if lock, err := lockers[i%len(lockers)].TryLock(ctx, fmt.Sprint("k", i)); err == nil {
				_ = lock.Unlock(t.Context())
			}
		})
	}
	callers.Wait()
}

// withClock makes a program that runs redis-server with a clock of its own, which [setClock] sets.
func withClock(t *testing.T) string {
	t.Helper()
	redistest.MustBeInstalled(t) // the program that this returns always is
	redistest.MustHave(t, "cc")
	dir := t.TempDir()
	lib, wrapper := filepath.Join(dir, "clock.so"), filepath.Join(dir, "redis-server")
	out, err := exec.CommandContext(t.Context(), "cc", "-shared", "-fPIC", "-O2", "-o", lib, "testdata/clock.c", "-ldl").CombinedOutput()
	require.NoError(t, err, string(out))
	script := fmt.Sprintf("#!/bin/sh\nCLOCK_OFFSET=${1%%/*}/offset LD_PRELOAD=%s exec %s \"$@\"\n", lib, redistest.Binary())
	require.NoError(t, os.WriteFile(wrapper, []byte(script), 0o700)) //nolint:gosec // it is run
	return wrapper
}

// setClock sets the clock of a server on a socket, which lies in its directory, forward or back by
// d. It waits until TIME shows that: a Valkey reads its clock once a turn of its loop.
func setClock(t *testing.T, s *redistest.Server, d time.Duration) {
	t.Helper()
	offset := filepath.Join(filepath.Dir(s.Addr()), "offset")
	require.NoError(t, os.WriteFile(offset+".next", fmt.Append(nil, d.Microseconds()), 0o600))
	require.NoError(t, os.Rename(offset+".next", offset))
	client := s.Client(t)
	locktest.Eventually(t, "the clock is set", func() bool {
		at, err := client.Time(t.Context()).Result()
		return err == nil && (time.Until(at)-d).Abs() < time.Second
	})
}

// connected reports whether all connections of a client work. rueidis chooses one of a few for each
// script, and notices that one is broken when a command meets it. When commands have come at once, it
// pipelines. Before that, a command waits for the reply to a PING of rueidis.
func connected(t *testing.T, client *redis.Client) bool {
	t.Helper()
	var failed atomic.Bool
	var scripts sync.WaitGroup
	for range 50 {
		scripts.Go(func() {
			if client.Eval(t.Context(), "return 1", []string{"k"}).Err() != nil {
				failed.Store(true)
			}
		})
	}
	scripts.Wait()
	return !failed.Load()
}

// TestClockOfRedisRefusesNoLock: the first command of a Locker, a clock of Redis that is set
// forward or back, and a failover to a server with another clock cost one more trip at most. So
// does a round trip of three tenths of the op timeout.
func TestClockOfRedisRefusesNoLock(t *testing.T) {
	t.Parallel()
	program := withClock(t)
	for name, open := range locktest.Strategies {
		for _, step := range []time.Duration{10 * time.Second, -10 * time.Second} { // more than the op timeout
			t.Run(fmt.Sprintf("%s, %v", name, step), func(t *testing.T) {
				t.Parallel()
				s, other := redistest.StartProgram(t, program), redistest.StartProgram(t, program)
				loaded, err := open(other.Client(t), locktest.Patience) // its scripts are
				require.NoError(t, err)
				require.NoError(t, locktest.LockSoon(t, loaded, "warm").Unlock(t.Context()))
				p := faultproxy.New(t, s.Network(), s.Addr())
				client := p.Client(t)
				sent := redistest.CountScripts(client)
				l, err := open(client, locktest.Patience)
				require.NoError(t, err)
				require.NoError(t, client.Ping(t.Context()).Err())
				// requireGrants locks two keys. The first may take one more trip, and the second
				// may not.
				requireGrants := func(what string) {
					for i, most := range []int64{2, 1} {
						before := sent.Load()
						lock, err := l.TryLock(t.Context(), fmt.Sprint(what, i))
						require.NoError(t, err, what)
						require.LessOrEqual(t, sent.Load()-before, most, what)
						require.NoError(t, lock.Unlock(t.Context()), what)
					}
				}
				requireGrants("the first command")
				setClock(t, s, step)
				requireGrants("the clock was set")
				for _, to := range []*redistest.Server{other, s} { // whose clocks differ
					p.PointAt(to.Network(), to.Addr())
					p.Cut()
					locktest.Eventually(t, "the client is connected", func() bool { return connected(t, client) })
					requireGrants("failover to " + to.Addr())
				}
				setClock(t, s, 0)
				requireGrants("the clock was set back")
				p.Delay(1200 * time.Millisecond)
				requireGrants("a slow link")
			})
		}
	}
}
