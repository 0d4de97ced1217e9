package node

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestNothingWaitsForABatchToFill: a call leaves at once and alone while a courier is free. What comes while
// all are busy leaves together, in order.
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

// TestCallWithASecondCommandTravelsAlone: with that right behind it.
func TestCallWithASecondCommandTravelsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, g := gated(t)
		g.occupy(t, n)
		post(t.Context(), n, within(Command("before"), time.Minute))
		both := within(Command("set"), time.Minute)
		both.Beside = []any{"wait", 1, 100}
		p := post(t.Context(), n, both)
		post(t.Context(), n, within(Command("after"), time.Minute))
		g.open()
		require.ElementsMatch(t, []batch{{{"before"}}, {{"set"}, {"wait", "1", "100"}}, {{"after"}}},
			[]batch{<-g.sent, <-g.sent, <-g.sent})
		r := p.wait(t)
		requireOK(t, false, r)
		require.Equal(t, "OK", r.Beside.Value)
	})
}

// TestOnlyCallOfABatchLendsItsCtx: its values are those of its caller, as traces need them. A batch of
// several has none. Either ctx ends with its commands.
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
		require.NoError(t, ctx.Err(), "a call that was posted heeds its timeout alone")

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

// TestCourierWhoseCallsEndedIsReplaced is rule 8: go-redis may wait for ever. So many couriers at most wait
// for it, and what would need more of them ends in time and is never sent. Afterwards nothing is left.
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

// TestSilentIsANodeThatAnsweredNothingDuringACall is rule 15.
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
		require.False(t, n.Silent(), "nobody knows yet")
		require.NoError(t, do("set", time.Second))
		require.False(t, n.Silent())

		silent.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.Error(t, n.Do(ctx, within(Command("set"), time.Minute)).Err)
		require.False(t, n.Silent(), "the caller was not patient")

		slow := post(t.Context(), n, within(Command("set"), time.Second))
		time.Sleep(500 * time.Millisecond)
		require.NoError(t, do("get", time.Second))
		time.Sleep(time.Millisecond) // else what follows begins at the instant of the answer
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

// TestSilentNodeTriesAnotherConnection: where the server was silent, calls travel alone, and the first send
// gets a quarter of the time. A call that must not be sent twice has all of it.
func TestSilentNodeTriesAnotherConnection(t *testing.T) {
	type send struct {
		batch
		at time.Time
	}
	for name, c := range map[string]struct {
		calls []*Call
		at    []time.Duration // when what is sent leaves
		ok    bool
	}{
		"a call":                             {[]*Call{Command("set")}, []time.Duration{0, 250 * time.Millisecond}, true},
		"a call that must not be sent twice": {[]*Call{{Once: true, words: []any{"set"}}}, []time.Duration{0}, false},
		"two calls":                          {[]*Call{Command("set"), Command("set")}, []time.Duration{0, 0, 250 * time.Millisecond, 250 * time.Millisecond}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sent := make(chan send, 10)
				n := answered(t, func(b batch) error {
					s := send{b, time.Now()}
					sent <- s
					if len(sent) <= 1+len(c.calls) { // with the first silence
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
					require.Equal(t, c.ok, p.wait(t).Err == nil)
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
