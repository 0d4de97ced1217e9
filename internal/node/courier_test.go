package node

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/rediserr"
	"github.com/redlatch/redlatch/internal/testing/faultproxy"
	"github.com/redlatch/redlatch/internal/testing/redistest"
)

// TestNothingWaitsForABatchToFill: a call is sent at once and alone while a courier is free. Calls
// that come while all couriers are busy are sent together, in order. A call with a second command
// is sent alone.
func TestNothingWaitsForABatchToFill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, g := gated(t)
		for range couriers {
			post(n, Command("first"))
			require.Equal(t, commands{{"first"}}, <-g.sent)
		}
		var calls []<-chan Reply
		for i := range longestBatch + 10 {
			calls = append(calls, post(n, Command("set", i)))
		}
		pair := post(n, waits(Command("set", 0)))
		last := post(n, Command("set", 0))
		synctest.Wait()
		require.Empty(t, g.sent)
		g.open()
		var sizes []int
		for range 4 {
			sent := <-g.sent
			sizes = append(sizes, len(sent))
			first, _ := strconv.Atoi(sent[0][1])
			for i, words := range sent {
				if words[0] != "wait" {
					require.Equal(t, []string{"set", strconv.Itoa(first + i)}, words)
				}
			}
		}
		require.ElementsMatch(t, []int{longestBatch, 10, 2, 1}, sizes)
		for _, c := range append(calls, last) {
			requireOK(t, false, <-c)
		}
		require.Equal(t, Reply{Value: "OK", Then: &Reply{Value: "OK"}}, <-pair)
	})
}

// TestCutBatchIsSentAgain: each call of the batch is sent again, once, and reports that it may have
// been carried out.
func TestCutBatchIsSentAgain(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for _, size := range []int{1, longestBatch} {
		for each, lose := range map[int64]func(p *faultproxy.Proxy, n int, containing string){ // by how often it is carried out
			2: (*faultproxy.Proxy).LoseReplies,
			1: (*faultproxy.Proxy).LoseRequests,
		} {
			p := faultproxy.New(t, s.Network(), s.Addr())
			n := New(p.Client(t))
			require.NoError(t, do(n, Eval(increase, 1, "n", 1)).Err) // the script is loaded
			var calls []*Call
			for i := range size {
				calls = append(calls, Eval(increase, 1, fmt.Sprint(size, each, i), 1))
			}
			lose(p, 1, "evalsha")
			for _, reply := range together(n, calls...) {
				require.Equal(t, Reply{Value: each, Resent: true}, <-reply)
			}
			require.Equal(t, 1, p.Lost())
		}
	}
}

// TestCallWithoutAReplyIsSentAgain: a hook of the client reports success without one.
func TestCallWithoutAReplyIsSentAgain(t *testing.T) {
	for calls := 1; calls <= 2; calls++ {
		synctest.Test(t, func(t *testing.T) {
			sent := false
			n := answered(t, func(commands) error { return nil }, hook(func(_ context.Context, _ []redis.Cmder, next func() error) error {
				if !sent {
					sent = true
					return nil
				}
				return next()
			}))
			var batch []*Call
			for range calls {
				batch = append(batch, Command("set", "key", "value"))
			}
			for _, reply := range together(n, batch...) {
				requireOK(t, true, <-reply)
			}
		})
	}
}

// TestFirstCtxOfABatchIsItsCtx: the ctx of a batch has the values of the first ctx of [Node.Post],
// as traces need them. Renewals have none. It ends with its commands, not with that ctx.
func TestFirstCtxOfABatchIsItsCtx(t *testing.T) {
	for size := range 3 {
		synctest.Test(t, func(t *testing.T) {
			type name struct{}
			g, seen := newGate(t), make(chan context.Context, 2)
			n := answered(t, g.pass, hook(func(ctx context.Context, _ []redis.Cmder, next func() error) error {
				seen <- ctx
				return next()
			}))
			caller, cancel := context.WithCancel(context.WithValue(t.Context(), name{}, "mine"))
			another := context.WithValue(t.Context(), name{}, "another's")
			n.mu.Lock() // so that no courier starts before all calls are in the mailbox
			for _, ctx := range append(slices.Repeat([]context.Context{context.Background()}, size), caller, another) {
				c := within(Command("set"), time.Minute)
				c.ctx = ctx //nolint:fatcontext // of a call
				n.postLocked(c, clock.MonoNow())
			}
			n.mu.Unlock()
			ctx := <-seen
			require.Equal(t, "mine", ctx.Value(name{}))
			require.Len(t, <-g.sent, 2+size)
			deadline, _ := ctx.Deadline()
			require.Equal(t, time.Minute, time.Until(deadline).Round(time.Millisecond))
			cancel()
			require.NoError(t, ctx.Err())
			g.open()
			<-ctx.Done()
			require.ErrorIs(t, ctx.Err(), context.Canceled)
		})
	}
}

// TestCourierWhoseCallsEndedIsReplaced: go-redis may wait forever. Calls in the mailbox are sent
// once a hung courier is replaced. The number of hung couriers is limited. Calls that would need
// more of them end in time and are never sent. Afterwards nothing is left.
func TestCourierWhoseCallsEndedIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, g := gated(t)
		for range couriers {
			post(n, within(Command("hung"), time.Second))
			<-g.sent
		}
		next := post(n, within(Command("next"), 2*time.Second))
		synctest.Wait()
		require.Empty(t, g.sent)
		require.Equal(t, commands{{"next"}}, <-g.sent)
		require.False(t, isNotDone((<-next).Err))

		const calls = connected + 10
		var notDone int
		for range calls {
			if isNotDone(do(n, within(Command("hung"), time.Second)).Err) {
				notDone++
			}
		}
		require.Len(t, g.sent, connected-couriers-1, "with so many, no connection is left")
		require.Equal(t, calls-len(g.sent), notDone)
		waits := post(n, Command("set"))
		g.open()
		requireOK(t, false, <-waits)
		requireIdle(t, n)
	})
}

// TestSilentIsANodeThatAnsweredNothingDuringACall: a refusal is an answer. A silent node sends each
// call alone, since old connections may be dead while new ones work.
func TestSilentIsANodeThatAnsweredNothingDuringACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t)
		n := answered(t, func(sent commands) error {
			if sent[0][0] == "refused" {
				return answer("NOPERM no")
			}
			return g.pass(sent)
		})
		slow := post(n, within(Command("hung"), time.Second))
		time.Sleep(500 * time.Millisecond)
		require.True(t, rediserr.Answered(do(n, Command("refused")).Err))
		require.Error(t, (<-slow).Err)
		require.False(t, silent(n), "it answered meanwhile")
		require.Error(t, do(n, within(Command("hung"), time.Second)).Err)
		require.True(t, silent(n))

		for i := range couriers + 3 { // the last three are sent when the first have timed out
			post(n, within(Command("hung"), time.Duration(i+1)*time.Second))
		}
		time.Sleep(time.Minute)
		require.Len(t, g.sent, 2+couriers+3)
		for len(g.sent) > 0 {
			require.Len(t, <-g.sent, 1)
		}
		require.Error(t, do(n, Command("refused")).Err)
		require.False(t, silent(n))
		g.open()
		requireIdle(t, n)
	})
}

// TestBatchHasRoomForItsCalls: for those that leave together, and not for others that wait.
func TestBatchHasRoomForItsCalls(t *testing.T) {
	for want, c := range map[int]func() *Call{
		1:   func() *Call { return waits(Command("eval")) }, // it travels alone
		100: func() *Call { return Command("ping") },
	} {
		synctest.Test(t, func(t *testing.T) {
			n, g := gated(t)
			var replies []<-chan Reply
			for range couriers { // all are away
				replies = append(replies, post(n, Command("ping")))
				synctest.Wait()
			}
			for range 100 {
				replies = append(replies, post(n, c()))
			}
			n.mu.Lock()
			b := n.loadLocked()
			n.mu.Unlock()
			require.Len(t, b.items, min(want, longestBatch))
			require.Less(t, cap(b.items), 2*len(b.items))
			g.open()
			n.carry(b)
			n.mu.Lock()
			n.landLocked(b)
			n.unlock()
			for _, reply := range replies {
				require.NoError(t, (<-reply).Err)
			}
			synctest.Wait()
			require.True(t, idle(n))
		})
	}
}

// TestCommandTakesOneTrip: with one caller more than couriers, each call takes little more than a
// round trip, where one in four took two. The receivers of a batch run before its courier takes the
// next one, so that their next calls leave together.
func TestCommandTakesOneTrip(t *testing.T) {
	for _, callers := range []int{1, 4, 5} {
		synctest.Test(t, func(t *testing.T) {
			const trip, calls = time.Millisecond, 200
			n := answered(t, func(commands) error {
				time.Sleep(trip)
				return nil
			})
			begin := time.Now()
			var all sync.WaitGroup
			for range callers {
				all.Go(func() {
					for range calls {
						requireOK(t, false, do(n, Command("ping")))
					}
				})
			}
			all.Wait()
			require.Less(t, time.Since(begin), calls*trip*6/5, "%d callers", callers)
		})
	}
}

// TestReplyReachesNoOtherUseOfACall: a call is used again while a batch of its first use is still
// there, which is a mistake of the node. Its reply is dropped.
func TestReplyReachesNoOtherUseOfACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, g := gated(t)
		c := Command("first")
		stale := item{call: c, use: c.uses, cmd: redis.NewCmd(t.Context())}
		stale.cmd.SetVal("of the first")
		*c = Call{uses: c.uses + 1} // as useAgain does
		c.Append("second")
		got := post(n, c)
		<-g.sent
		n.mu.Lock()
		require.Panics(t, func() { n.arrivedLocked(&stale, false, clock.MonoNow()) })
		n.mu.Unlock()
		synctest.Wait()
		require.Empty(t, got)
		g.open()
		requireOK(t, false, <-got)
	})
}
