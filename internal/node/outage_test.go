package node

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

	"github.com/redlatch/redlatch/internal/faultproxy"
	"github.com/redlatch/redlatch/internal/redistest"
)

// TestStoppedServerPilesUpNothing: with 2,000 callers. Each call ends in time, and a bounded
// number of goroutines serves all of them. A call that was never sent is known not to be done. After the
// server resumes, calls succeed again, and nothing is left.
func TestStoppedServerPilesUpNothing(t *testing.T) { // not parallel: it counts goroutines
	const callers, timeout, margin = 2000, 500 * time.Millisecond, 5 * time.Second
	s := redistest.Start(t)
	o := s.Options()
	o.ReadTimeout = -1
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	n := New(client)
	require.NoError(t, do(n, Command("ping")).Err)
	before := runtime.NumGoroutine()

	s.Pause()
	begin := time.Now()
	var replies []<-chan Reply
	for i := range callers {
		replies = append(replies, post(n, within(Command("set", fmt.Sprint("k", i), 1), timeout)))
	}
	most := 0
	for ; time.Since(begin) < timeout; <-time.After(time.Millisecond) {
		most = max(most, runtime.NumGoroutine())
	}
	require.Less(t, most-before, 100)
	var notDone []string
	for i, reply := range replies {
		r := <-reply
		require.True(t, Silence(r.Err))
		if isNotDone(r.Err) {
			notDone = append(notDone, fmt.Sprint("k", i))
		}
	}
	require.Less(t, time.Since(begin), timeout+margin)
	require.NotEmpty(t, notDone)
	require.True(t, silent(n))

	s.Resume()
	require.NoError(t, do(n, Command("ping")).Err)
	requireIdle(t, n)
	require.Zero(t, client.Exists(t.Context(), notDone...).Val())
	require.NoError(t, client.Close())
	eventually(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before })
}

// TestSilentConnectionsDoNotKeepNewOnesFromWorking: the open connections go silent, as behind a firewall that forgot
// them. Each of them costs at most one call, whatever the timeouts of the client are.
func TestSilentConnectionsDoNotKeepNewOnesFromWorking(t *testing.T) {
	t.Parallel()
	for _, timeout := range []time.Duration{0, -1} { // go-redis' default of 5 s, and none
		t.Run(fmt.Sprint("ReadTimeout ", timeout), func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			p := faultproxy.New(t, s.Network(), s.Addr())
			o := p.Options()
			o.ReadTimeout, o.WriteTimeout = timeout, timeout
			client := redis.NewClient(o)
			t.Cleanup(func() { _ = client.Close() })
			n := New(client)
			var replies []<-chan Reply
			for range 1000 {
				replies = append(replies, post(n, Command("ping")))
			}
			for _, reply := range replies {
				require.NoError(t, (<-reply).Err)
			}
			p.SilenceOpen()
			defer p.Cut() // otherwise Close of the client would wait for the commands in flight
			open := p.Connections()
			require.LessOrEqual(t, open, 2*couriers, "some for single commands, others for pipelines")
			for failed := 0; do(n, within(Command("ping"), time.Second)).Err != nil; failed++ {
				require.Less(t, failed, open)
			}
			require.False(t, silent(n))
		})
	}
}

// TestClientThatHeedsDeadlinesIsNotCanceled: the error of a call that timed out does not match the error of
// a ctx. Otherwise its caller would mistake it for the end of its own ctx.
func TestClientThatHeedsDeadlinesIsNotCanceled(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := faultproxy.New(t, s.Network(), s.Addr())
	for name, heeds := range map[string]bool{"heeds": true, "ignores": false} {
		t.Run(name, func(t *testing.T) {
			o := p.Options()
			o.ContextTimeoutEnabled = heeds
			client := redis.NewClient(o)
			t.Cleanup(func() { _ = client.Close() })
			n := New(client)
			require.NoError(t, do(n, Command("ping")).Err)
			p.Silence()
			for range 10 {
				var replies []<-chan Reply
				for range 8 {
					replies = append(replies, post(n, within(Command("ping"), 50*time.Millisecond)))
				}
				for _, reply := range replies {
					err := (<-reply).Err
					require.ErrorAs(t, err, new(*NoReply))
					require.NotErrorIs(t, err, context.Canceled)
					require.NotErrorIs(t, err, context.DeadlineExceeded)
				}
			}
			p.Cut()
			p.Heal()
			requireIdle(t, n)
		})
	}
}

// TestRestartReportsWhatWasDone: the server is killed while full batches are in flight, and calls time out at any instant.
// The outcome that each call reports is true.
func TestRestartReportsWhatWasDone(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	o := s.Options()
	o.DialerRetries = 1 // so that the client soon notices a restart
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	n := New(client)
	var wg sync.WaitGroup
	var stop atomic.Bool
	type outcome struct {
		key string
		Reply
	}
	var mu sync.Mutex // guards all
	var all []outcome
	var succeeded, resent, notDone atomic.Int64
	for g := range 64 {
		wg.Go(func() {
			for i := 0; !stop.Load(); i++ {
				key, timeout := fmt.Sprintf("%d-%d", g, i), 10*time.Second
				if g%2 == 0 {
					timeout = rand.N(30 * time.Millisecond)
				}
				r := do(n, within(Eval(increase, 1, key, 1), max(timeout, 1)))
				mu.Lock()
				all = append(all, outcome{key, r})
				mu.Unlock()
				switch {
				case r.Err == nil && r.Resent:
					resent.Add(1)
				case r.Err == nil:
					succeeded.Add(1)
				case isNotDone(r.Err):
					notDone.Add(1)
				}
			}
		})
	}
	for round := 0; round < 3 || round < 20 && resent.Load() == 0; round++ {
		before := succeeded.Load()
		eventually(t, "calls go on", func() bool { return succeeded.Load() > before+300 })
		s.Kill()
		before = notDone.Load()
		eventually(t, "calls fail", func() bool { return notDone.Load() > before })
		s.Restart(t)
	}
	stop.Store(true)
	wg.Wait()
	requireIdle(t, n)
	direct := s.Client(t)
	for _, o := range all {
		got, err := direct.Get(t.Context(), o.key).Int64()
		if !errors.Is(err, redis.Nil) {
			require.NoError(t, err)
		}
		switch {
		case o.Err == nil && o.Resent: // an earlier send may have been carried out before this one, or after it
			require.LessOrEqual(t, o.Value, got, o.key)
			require.Positive(t, got, o.key)
		case o.Err == nil:
			require.Equal(t, int64(1), o.Value, o.key)
			require.Equal(t, int64(1), got, o.key)
		case isNotDone(o.Err):
			require.Zero(t, got, o.key)
		case !o.Resent:
			require.LessOrEqual(t, got, int64(1), o.key)
		}
	}
	t.Logf("of %d, %d done once, %d sent again, %d not done", len(all), succeeded.Load(), resent.Load(), notDone.Load())
	require.Positive(t, resent.Load())
}

// TestSlowCallsDoNotHoldUpOthers: many calls on a slow node of a client wait at once for
// replicas that do not exist. Calls on the other node of that client succeed meanwhile.
func TestSlowCallsDoNotHoldUpOthers(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 1, 4} { // 0 is go-redis' default
		t.Run(fmt.Sprint("PoolSize ", size), func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			o := s.Options()
			o.PoolSize = size
			client := redis.NewClient(o)
			t.Cleanup(func() { _ = client.Close() })
			fast, slow := New(client), NewSlow(client)
			direct := s.Client(t)
			var calls []<-chan Reply
			for i := range 200 {
				c := within(Command("set", fmt.Sprint("k", i), 1), 4*time.Second)
				c.Then = []any{"wait", 1, 1000}
				calls = append(calls, post(slow, c))
			}
			eventually(t, "some of the calls wait", func() bool { return blocked(t, direct) > 0 })
			for range 10 {
				require.NoError(t, do(fast, Command("ping")).Err)
			}
			require.Positive(t, blocked(t, direct))
			r := <-calls[0]
			requireOK(t, false, r)
			require.Equal(t, int64(0), r.Then.Value)
			require.True(t, isNotDone((<-calls[199]).Err))
			requireIdle(t, slow)
			require.Zero(t, direct.Exists(t.Context(), "k199").Val())
		})
	}
}

// blocked returns how many clients wait in a command.
func blocked(t *testing.T, direct *redis.Client) (n int) {
	t.Helper()
	info, err := direct.InfoMap(t.Context(), "clients").Result()
	require.NoError(t, err)
	_, err = fmt.Sscan(info["Clients"]["blocked_clients"], &n)
	require.NoError(t, err)
	return n
}
