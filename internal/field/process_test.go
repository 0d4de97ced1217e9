package field_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/locktest"
	"github.com/redlatch/redlatch/internal/testing/redistest"
)

// A crew is a process that waits for a key.
type crew struct {
	ttl     time.Duration
	lines   int  // Lockers, each with a client and a channel of its own, so that Redis sees a process
	waiters int  // callers in each line
	holds   bool // it also has the lock
}

// lockerAt returns a Locker on a server or on the masters of a cluster, with a client of its own.
func lockerAt(t *testing.T, addrs string, ttl time.Duration) redlatch.Locker {
	client := locktest.Closing(t, redis.NewUniversalClient(&redis.UniversalOptions{Addrs: strings.Split(addrs, ",")}))
	return locktest.SetNXPX(t, client, redlatch.WithTTL(ttl))
}

// beCrew is that process. It says how each of its waiters was served.
func beCrew(t *testing.T, part string) {
	var c crew
	var addrs string
	_, err := fmt.Sscan(part, &c.ttl, &c.lines, &c.waiters, &c.holds, &addrs)
	require.NoError(t, err)
	var waiting, served sync.WaitGroup
	waiting.Add(c.lines * c.waiters)
	waits := redlatch.WithHooks(redlatch.Hooks{Waiting: func(context.Context, redlatch.Event) { waiting.Done() }})
	for range c.lines {
		l := lockerAt(t, addrs, c.ttl)
		if c.holds {
			lock := locktest.MustLock(t, l, "k")
			defer runtime.KeepAlive(lock)
		}
		for range c.waiters {
			served.Go(func() {
				lock, err := l.Lock(t.Context(), "k", waits)
				if err == nil {
					err = lock.Unlock(t.Context())
				}
				say("served", err)
			})
		}
	}
	waiting.Wait()
	say("waits")
	served.Wait()
}

// TestHurtProcessCostsOthersLittle: a process with waiters is killed or frozen. Killed waiters cost
// nothing, since Redis knows that nobody listens. In a cluster it does not know, and each line
// costs a second. Redis counts a frozen process as listening: it costs a claim, and its lease if it
// holds the lock, whatever the number of its waiters. All of them are served when it continues. The
// time is that of Redis and of locks: what the work itself takes is measured before, without the
// hurt process.
func TestHurtProcessCostsOthersLittle(t *testing.T) {
	t.Parallel()
	if part := os.Getenv(childsPart); part != "" {
		beCrew(t, part)
		return
	}
	const (
		ttl   = 10 * time.Second
		short = 1500 * time.Millisecond
		claim = 2 * time.Second // the key belongs to a process that was handed it, until that extends it
		look  = 2 * time.Second // between two looks of a waiter, at most
	)
	for name, c := range map[string]struct {
		crew
		kill                 bool
		onServer, inACluster time.Duration // what it may cost
	}{
		"killed":                {crew{ttl, 2, 1, false}, true, 0, 2 * time.Second},
		"frozen":                {crew{ttl, 1, 20, false}, false, claim + look, claim + look},
		"frozen while it holds": {crew{short, 1, 20, true}, false, 2*short + look, 2*short + look},
	} {
		for where, start := range map[string]func(t *testing.T) ([]*redis.Client, []string){
			"on a server": func(t *testing.T) ([]*redis.Client, []string) {
				s := redistest.StartTCP(t)
				return []*redis.Client{s.Client(t)}, []string{s.Addr()}
			},
			"in a cluster": startCluster,
		} {
			t.Run(name+" "+where, func(t *testing.T) {
				t.Parallel()
				servers, addrs := start(t)
				limit := c.onServer
				if len(servers) > 1 {
					limit = c.inACluster
				}
				at := strings.Join(addrs, ",")
				alone := work(t, at, "control", c.ttl)
				l := lockerAt(t, at, c.ttl)
				release := func() error { return nil }
				if !c.holds {
					holder := locktest.MustLock(t, l, "k")
					release = func() error { return holder.Unlock(t.Context()) }
				}
				child := startChild(t, fmt.Sprintf("%d %d %d %t %s", c.ttl, c.lines, c.waiters, c.holds, at))
				require.Equal(t, "waits", <-child.said)
				locktest.Eventually(t, "all lines queue", func() bool {
					st, err := l.Inspect(t.Context(), "k")
					return err == nil && st.Waiters == c.lines
				})
				if c.kill {
					_ = child.Process.Kill()
					_ = child.Wait() // it reports the signal
					for _, s := range servers {
						locktest.Eventually(t, "nobody listens", func() bool { return len(s.PubSubChannels(t.Context(), "redlatch:*").Val()) == 0 })
					}
				} else {
					child.signal(t, "STOP")
				}
				begin := time.Now()
				require.NoError(t, release())
				work(t, at, "k", c.ttl)
				took := time.Since(begin)
				if !c.kill {
					child.signal(t, "CONT") // at once: it may just have been handed the key, for the claim
					for range c.waiters {
						require.Equal(t, "served <nil>", <-child.said)
					}
					require.NoError(t, child.Wait())
				}
				alone = max(alone, work(t, at, "control", c.ttl))
				t.Logf("it took %v, and %v without the other process", took, alone)
				require.Less(t, took, limit+time.Second+5*alone)
			})
		}
	}
}

// work has two processes lock and unlock key 20 times each, and returns how long that took.
func work(t *testing.T, addrs, key string, ttl time.Duration) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	begin := time.Now()
	var wg sync.WaitGroup
	for range 2 {
		l := lockerAt(t, addrs, ttl)
		wg.Go(func() {
			for range 20 {
				if err := redlatch.Do(ctx, l, key, func(context.Context, *redlatch.Lock) error { return nil }); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	return time.Since(begin)
}
