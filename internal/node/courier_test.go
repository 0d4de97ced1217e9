package node

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestNothingWaitsForABatchToFill: a call is sent at once and alone while a courier is free. Calls that come
// while all couriers are busy are sent together, in order.
func TestNothingWaitsForABatchToFill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, g := gated(t)
		for range couriers {
			post(t.Context(), n, within(Command("first"), time.Minute))
			require.Equal(t, batch{{"first"}}, <-g.sent)
		}
		var calls []*posted
		for i := range longestBatch + 10 {
			calls = append(calls, post(t.Context(), n, within(Command("set", i), time.Minute)))
		}
		synctest.Wait()
		require.Empty(t, g.sent)
		g.open()
		var sizes []int
		for range 2 {
			b := <-g.sent
			sizes = append(sizes, len(b))
			first, err := strconv.Atoi(b[0][1])
			require.NoError(t, err)
			for i, words := range b {
				require.Equal(t, []string{"set", strconv.Itoa(first + i)}, words)
			}
		}
		require.ElementsMatch(t, []int{longestBatch, 10}, sizes)
		for _, p := range calls {
			requireOK(t, false, p.wait(t))
		}
	})
}

// TestCallWithASecondCommandTravelsAlone: the call is sent alone, with its second command right behind its
// first.
func TestCallWithASecondCommandTravelsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, g := gated(t)
		g.occupy(t, n)
		post(t.Context(), n, within(Command("before"), time.Minute))
		both := within(Command("set"), time.Minute)
		both.Then = []any{"wait", 1, 100}
		p := post(t.Context(), n, both)
		post(t.Context(), n, within(Command("after"), time.Minute))
		g.open()
		require.ElementsMatch(t, []batch{{{"before"}}, {{"set"}, {"wait", "1", "100"}}, {{"after"}}},
			[]batch{<-g.sent, <-g.sent, <-g.sent})
		r := p.wait(t)
		requireOK(t, false, r)
		require.Equal(t, "OK", r.Then.Value)
	})
}

// TestOnlyCallOfABatchLendsItsCtx: the ctx of a batch of one call has the values of its caller's ctx,
// as traces need them. The ctx of a batch of several calls has no values. Both end with their
// commands.
func TestOnlyCallOfABatchLendsItsCtx(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, g := gated(t)
		type name struct{}
		seen := make(chan context.Context, 10)
		n.client.AddHook(hook(func(ctx context.Context, cmds []redis.Cmder, next func() error) error {
			if cmds[0].Name() == "set" {
				seen <- ctx
			}
			return next()
		}))
		caller, cancel := context.WithCancel(context.WithValue(t.Context(), name{}, "mine"))
		one := post(caller, n, within(Command("set"), time.Minute))
		ctx := <-seen
		require.Equal(t, "mine", ctx.Value(name{}))
		deadline, ok := ctx.Deadline()
		require.True(t, ok)
		require.Equal(t, time.Minute, time.Until(deadline).Round(time.Millisecond))
		cancel()
		synctest.Wait()
		require.NoError(t, ctx.Err(), "a call that was posted ends only with its timeout")

		<-g.sent
		for range couriers - 1 {
			post(t.Context(), n, within(Command("hold"), time.Minute))
			<-g.sent
		}
		post(caller, n, within(Command("set"), time.Minute))
		two := post(caller, n, within(Command("set"), 2*time.Minute))
		g.open()
		requireOK(t, false, one.wait(t))
		requireOK(t, false, two.wait(t))
		synctest.Wait()
		<-ctx.Done()
		require.ErrorIs(t, ctx.Err(), context.Canceled)
		ctx = <-seen
		require.Nil(t, ctx.Value(name{}))
		require.ErrorIs(t, ctx.Err(), context.Canceled)
		require.Empty(t, seen)
	})
}

// TestCourierWhoseCallsEndedIsReplaced: go-redis may wait forever. The number of couriers that
// wait for it is limited. Calls that would need more couriers end in time and are never sent. Afterwards
// nothing is left.
func TestCourierWhoseCallsEndedIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, g := gated(t)
		n.mostLost = 8
		var notDone int
		const calls = 100
		for i := range calls {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			r := n.Do(ctx, within(Command("set"), time.Second))
			cancel()
			require.ErrorIs(t, r.Err, context.DeadlineExceeded)
			if errors.As(r.Err, new(*NotDone)) {
				notDone++
			}
			busy, lost := n.couriersAtWork()
			require.Zero(t, busy)
			require.Equal(t, min(i+1, n.mostLost), lost)
		}
		require.Len(t, g.sent, n.mostLost)
		require.Equal(t, calls-n.mostLost, notDone)
		g.open()
		requireOK(t, false, n.Do(t.Context(), within(Command("set"), time.Second)))
		synctest.Wait()
		requireIdle(t, n)
	})
}

func TestSilentIsANodeThatAnsweredNothingDuringACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var silent, refusing atomic.Bool
		n := answered(t, func(sent batch) error {
			switch {
			case silent.Load() && sent[0][0] == "set":
				time.Sleep(time.Hour)
			case refusing.Load():
				return answer("NOPERM no")
			}
			return nil
		})
		do := func(name string, timeout time.Duration) error {
			return n.Do(t.Context(), within(Command(name), timeout)).Err
		}
		require.False(t, n.Silent(), "nothing was sent yet")
		require.NoError(t, do("set", time.Second))
		require.False(t, n.Silent())

		silent.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.Error(t, n.Do(ctx, within(Command("set"), time.Minute)).Err)
		require.False(t, n.Silent(), "ctx ended before the timeout")

		slow := post(t.Context(), n, within(Command("set"), time.Second))
		time.Sleep(500 * time.Millisecond)
		require.NoError(t, do("get", time.Second))
		time.Sleep(time.Millisecond) // otherwise the next call begins at the instant of the answer
		require.Error(t, slow.wait(t).Err)
		require.False(t, n.Silent(), "it answered meanwhile")

		require.Error(t, do("set", time.Second))
		require.True(t, n.Silent())
		require.Error(t, do("set", time.Second))
		require.True(t, n.Silent())
		require.NoError(t, do("get", time.Second))
		require.False(t, n.Silent())

		time.Sleep(time.Millisecond)
		require.Error(t, do("set", time.Second))
		require.True(t, n.Silent())
		refusing.Store(true)
		require.Error(t, do("get", time.Second))
		require.False(t, n.Silent(), "a refusal is an answer")
		time.Sleep(2 * time.Hour)
	})
}

// TestSilentNodeTriesAnotherConnection: after silence each call is sent alone, and its first send gets a
// quarter of the timeout.
func TestSilentNodeTriesAnotherConnection(t *testing.T) {
	type send struct {
		batch
		at time.Time
	}
	for name, c := range map[string]struct {
		calls []*Call
		at    []time.Duration // when each send leaves
	}{
		"a call":    {[]*Call{Command("set")}, []time.Duration{0, 250 * time.Millisecond}},
		"two calls": {[]*Call{Command("set"), Command("set")}, []time.Duration{0, 0, 250 * time.Millisecond, 250 * time.Millisecond}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sent := make(chan send, 10)
				n := answered(t, func(b batch) error {
					s := send{b, time.Now()}
					sent <- s
					if len(sent) <= 1+len(c.calls) { // the ping below, and the first send of each call
						time.Sleep(time.Minute)
					}
					return nil
				})
				require.Error(t, n.Do(t.Context(), within(Command("ping"), time.Second)).Err)
				require.True(t, n.Silent())
				time.Sleep(time.Millisecond)
				begin := time.Now()
				var calls []*posted
				for _, call := range c.calls {
					calls = append(calls, post(t.Context(), n, within(call, time.Second)))
				}
				for _, p := range calls {
					require.NoError(t, p.wait(t).Err)
				}
				time.Sleep(time.Hour)
				<-sent
				for _, at := range c.at {
					s := <-sent
					require.Len(t, s.batch, 1)
					require.Equal(t, at, s.at.Sub(begin).Round(20*time.Millisecond).Truncate(50*time.Millisecond))
				}
				require.Empty(t, sent)
			})
		})
	}
}

// TestAnsweredCallersTravelTogether: callers that get replies post their next calls before the courier loads again.
func TestAnsweredCallersTravelTogether(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // so that those who are runnable run in turn
	synctest.Test(t, func(t *testing.T) {           // no yield takes time
		const callers, rounds = 8, 100
		var trips atomic.Int32
		n := answered(t, func(batch) error {
			trips.Add(1)
			return nil
		})
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				for range rounds {
					if r := n.Do(t.Context(), within(Command("ping"), limit)); r.Err != nil {
						t.Error(r.Err)
					}
				}
			})
		}
		all.Wait()
		require.Less(t, int(trips.Load()), callers*rounds/2)
	})
}

// TestCallsBehindACourierThatYielded: a courier that yielded takes one batch of what has been posted meanwhile, and another
// courier takes the rest.
func TestCallsBehindACourierThatYielded(t *testing.T) {
	t.Parallel()
	n, g := gated(t)
	n.mu.Lock()
	n.busy++
	n.back++
	n.mu.Unlock()
	var all []*posted
	for range longestBatch + 1 {
		all = append(all, post(t.Context(), n, within(Command("ping"), limit)))
	}
	require.Empty(t, g.sent)
	n.mu.Lock()
	n.back--
	n.mu.Unlock()
	go n.courier()
	require.Eventually(t, func() bool { return len(g.sent) == 2 }, limit, time.Millisecond, "while the first batch is under way")
	require.Equal(t, longestBatch+1, len(<-g.sent)+len(<-g.sent))
	g.open()
	for _, p := range all {
		requireOK(t, false, p.wait(t))
	}
}
