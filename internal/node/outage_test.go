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
	require.NoError(t, n.Do(t.Context(), within(Command("ping"), limit)).Err)
	before := runtime.NumGoroutine()

	s.Pause()
	var wg sync.WaitGroup
	var most, notDone atomic.Int64
	var done sync.Map
	for i := range callers {
		wg.Go(func() {
			c := within(Command("set", fmt.Sprint("k", i), 1), timeout)
			c.Late = func(Reply) { done.Store(i, true) }
			begin := time.Now()
			err := n.Do(t.Context(), c).Err
			took := time.Since(begin)
			if took < timeout || took > timeout+margin || !timedOut(err) {
				t.Errorf("call %d ended after %v: %v", i, took, err)
			}
			if errors.As(err, new(*NotDone)) {
				notDone.Add(1)
				done.Store(i, false)
			}
		})
	}
	begin := time.Now()
	for time.Since(begin) < timeout {
		most.Store(max(most.Load(), int64(runtime.NumGoroutine())))
		<-time.After(time.Millisecond)
	}
	wg.Wait()
	require.Less(t, int(most.Load())-callers-before, 100)
	require.Greater(t, notDone.Load(), int64(callers/4))
	require.True(t, n.Silent())

	s.Resume()
	require.NoError(t, n.Do(t.Context(), within(Command("ping"), limit)).Err)
	requireIdle(t, n)
	for i := range callers {
		var late any
		eventually(t, "the call was reported late or was not done", func() (told bool) {
			late, told = done.Load(i)
			return told
		})
		if late == false {
			require.Zero(t, client.Exists(t.Context(), fmt.Sprint("k", i)).Val())
		}
	}
	require.NoError(t, client.Close())
	stacks := make([]byte, 1<<20)
	eventually(t, "no goroutine is left", func() bool {
		stacks = stacks[:runtime.Stack(stacks[:cap(stacks)], true)]
		return runtime.NumGoroutine() <= before
	})
}

// TestSilentConnectionsDoNotKeepNewOnesFromWorking: the open connections go silent, as behind a
// firewall that forgot them. Calls succeed again soon, whatever the timeouts of the client are.
func TestSilentConnectionsDoNotKeepNewOnesFromWorking(t *testing.T) {
	t.Parallel()
	for _, timeout := range []time.Duration{0, -1} { // go-redis' default of 5 s, and none
		for name, leaves := range map[string]bool{"callers that stay": false, "callers that leave": true} {
			t.Run(fmt.Sprintf("ReadTimeout %d, %s", timeout, name), func(t *testing.T) {
				t.Parallel()
				s := redistest.Start(t)
				p := faultproxy.New(t, s.Network(), s.Addr())
				o := p.Options()
				o.ReadTimeout, o.WriteTimeout = timeout, timeout
				client := redis.NewClient(o)
				t.Cleanup(func() { _ = client.Close() })
				n := New(client)
				var wg sync.WaitGroup
				for range 64 {
					wg.Go(func() {
						for range 20 {
							if err := n.Do(t.Context(), within(Command("ping"), limit)).Err; err != nil {
								t.Error(err)
							}
						}
					})
				}
				wg.Wait()
				p.SilenceOpen()
				begin := time.Now()
				for {
					ctx, cancel := t.Context(), func() {}
					if leaves {
						ctx, cancel = context.WithTimeout(ctx, 100*time.Millisecond)
					}
					err := n.Do(ctx, within(Command("ping"), time.Second)).Err
					cancel()
					if err == nil {
						break
					}
					require.Less(t, time.Since(begin), 5*time.Second, "on an idle machine it takes about 1.3 s")
				}
				t.Log(time.Since(begin))
				require.False(t, n.Silent())
				p.Cut() // otherwise Close of the client would wait for the commands in flight
			})
		}
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
			require.NoError(t, n.Do(t.Context(), within(Command("ping"), limit)).Err)
			p.Silence()
			for range 10 {
				var wg sync.WaitGroup
				for range 8 {
					wg.Go(func() {
						err := n.Do(t.Context(), within(Command("ping"), 50*time.Millisecond)).Err
						if !errors.As(err, new(*NoReply)) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
							t.Errorf("%T: %v", err, err)
						}
					})
				}
				wg.Wait()
			}
			p.Cut()
			p.Heal()
			requireIdle(t, n)
		})
	}
}

// TestRestartReportsWhatWasDone: the server is killed while full batches are in flight. The
// outcome that each call reports is true.
func TestRestartReportsWhatWasDone(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	o := s.Options()
	o.DialerRetries = 1 // so that the client soon notices a restart
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	n := New(client)
	const callers = 64
	var wg sync.WaitGroup
	var stop atomic.Bool
	type outcome struct {
		key   string
		value any
		Reply
	}
	var mu sync.Mutex
	var all []outcome
	for g := range callers {
		wg.Go(func() {
			for i := 0; !stop.Load(); i++ {
				key := fmt.Sprintf("%d-%d", g, i)
				c := within(Eval(increase, 1, key, 1), []time.Duration{30 * time.Millisecond, 10 * time.Second}[g%2])
				r := n.Do(t.Context(), c)
				mu.Lock()
				all = append(all, outcome{key, r.Value, r})
				mu.Unlock()
				if r.Err != nil {
					<-time.After(time.Millisecond)
				}
			}
		})
	}
	count := func(what func(o outcome) bool) (n int) {
		mu.Lock()
		defer mu.Unlock()
		for _, o := range all {
			if what(o) {
				n++
			}
		}
		return n
	}
	succeeded := func(o outcome) bool { return o.Err == nil }
	resent := func(o outcome) bool { return o.Err == nil && o.Resent }
	notDone := func(o outcome) bool { return errors.As(o.Err, new(*NotDone)) }
	for round := 0; round < 3 || round < 20 && count(resent) == 0; round++ {
		before := count(succeeded)
		eventually(t, "calls go on", func() bool { return count(succeeded) > before+300 })
		s.Kill()
		before = count(notDone)
		eventually(t, "calls fail", func() bool { return count(notDone) > before })
		s.Restart(t)
	}
	stop.Store(true)
	wg.Wait()
	requireIdle(t, n)
	direct := s.Client(t)
	var done, never, open, again int
	for _, o := range all {
		got, err := direct.Get(t.Context(), o.key).Int64()
		if !errors.Is(err, redis.Nil) {
			require.NoError(t, err)
		}
		switch {
		case succeeded(o):
			done++
			require.Positive(t, got, o.key)
			if !o.Resent {
				require.Equal(t, o.value, got, o.key)
				require.Equal(t, int64(1), got, o.key)
			} else { // an earlier send may have been carried out before this one, or after it
				require.LessOrEqual(t, o.value, got, o.key)
				again++
			}
		case notDone(o):
			never++
			require.Zero(t, got, o.key)
		default:
			open++
			if !o.Resent {
				require.LessOrEqual(t, got, int64(1), o.key)
			}
		}
	}
	t.Logf("%d done, %d of them sent again, %d not done, %d unknown", done, again, never, open)
	require.Positive(t, never)
	require.Positive(t, again)
}

// TestCtxEndsACallAtAnyInstant: calls whose ctx ends at a random instant under load
// end at once. A call that is known not to be done is never carried out. The outcome of each other call
// that did not succeed is reported late.
func TestCtxEndsACallAtAnyInstant(t *testing.T) {
	t.Parallel()
	const callers, each = 64, 300
	s := redistest.Start(t)
	p := faultproxy.New(t, s.Network(), s.Addr())
	n := New(p.Client(t))
	require.NoError(t, n.Do(t.Context(), within(Command("ping"), limit)).Err)
	p.DelayFunc(func() time.Duration { return rand.N(2 * time.Millisecond) })
	const (
		unknown = iota
		succeeded
		notDone
		returned
		failed // late, with an error
	)
	var outcomes [callers * each]atomic.Int32
	var wg sync.WaitGroup
	for g := range callers {
		wg.Go(func() {
			for i := g * each; i < (g+1)*each; i++ {
				ctx, cancel := context.WithTimeout(t.Context(), rand.N(8*time.Millisecond))
				c := within(Command("set", fmt.Sprint("k", i), 1), time.Minute)
				told := &outcomes[i]
				c.Late = func(r Reply) {
					as := int32(returned)
					if r.Err != nil {
						as = failed
					}
					if !told.CompareAndSwap(unknown, as) {
						t.Errorf("reported late although the outcome was %d: %v", told.Load(), r.Err)
					}
				}
				err := n.Do(ctx, c).Err
				if deadline, _ := ctx.Deadline(); time.Since(deadline) > limit/4 {
					t.Error("the call did not end with its ctx")
				}
				cancel()
				was := int32(unknown)
				switch {
				case err == nil:
					was = succeeded
				case errors.As(err, new(*NotDone)):
					was = notDone
				case !errors.Is(err, context.DeadlineExceeded):
					t.Error(err)
				}
				if was != unknown && !told.CompareAndSwap(unknown, was) {
					t.Error("reported late although the outcome was known")
				}
			}
		})
	}
	wg.Wait()
	p.Heal()
	requireIdle(t, n)
	keys, err := s.Client(t).Keys(t.Context(), "k*").Result()
	require.NoError(t, err)
	there := make(map[string]bool)
	for _, key := range keys {
		there[key] = true
	}
	var counts [5]int
	for i := range outcomes {
		o := outcomes[i].Load()
		counts[o]++
		if o != failed {
			require.Equal(t, o == succeeded || o == returned, there[fmt.Sprint("k", i)], "outcome %d", o)
		}
	}
	t.Log("unknown, succeeded, not done, late, late and failed:", counts)
	require.Zero(t, counts[unknown])
	for _, count := range counts[succeeded:failed] {
		require.Positive(t, count)
	}
}
