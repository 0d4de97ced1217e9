package node

import (
	"context"
	"io"
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
			post(n, Command("first"))
			require.Equal(t, batch{{"first"}}, <-g.sent)
		}
		var calls []<-chan Reply
		for i := range longestBatch + 10 {
			calls = append(calls, post(n, Command("set", i)))
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
		for _, c := range calls {
			requireOK(t, false, <-c)
		}
	})
}

// TestCallWithASecondCommandTravelsAlone: the call is sent alone, with its second command right behind its
// first.
func TestCallWithASecondCommandTravelsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, g := gated(t)
		g.occupy(n)
		post(n, Command("before"))
		both := Command("set")
		both.Then = []any{"wait", 1, 100}
		reply := post(n, both)
		post(n, Command("after"))
		g.open()
		require.ElementsMatch(t, []batch{{{"before"}}, {{"set"}, {"wait", "1", "100"}}, {{"after"}}},
			[]batch{<-g.sent, <-g.sent, <-g.sent})
		r := <-reply
		requireOK(t, false, r)
		require.Equal(t, "OK", r.Then.Value)
	})
}

// TestPairGoesToTheMasterOfItsKey: in a cluster both commands go there in one pipeline. If the slot has moved, or the
// slots are not known, the pair is sent again until it reaches the master.
func TestPairGoesToTheMasterOfItsKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var unknown, moved atomic.Bool
		unknown.Store(true)
		sent := make(chan string, 10)
		n := clustered(t, func() ([]redis.ClusterSlot, error) {
			if unknown.Load() {
				return nil, io.EOF
			}
			return half(moved.Load()), nil
		}, func(port string, b batch) error {
			if len(b) == 2 {
				sent <- port
			}
			if moved.Load() && port == ":1" {
				return answer("MOVED 12182 127.0.0.1:2")
			}
			return nil
		})
		for _, to := range []string{":1", ":2"} {
			both := Command("set", "foo", 1)
			both.Key, both.Then = "foo", []any{"wait", 1, 100}
			reply := post(n, both)
			time.Sleep(time.Second)
			unknown.Store(false)
			r := <-reply
			require.NoError(t, r.Err)
			require.Equal(t, "OK", r.Value)
			require.Equal(t, "OK", r.Then.Value)
			for first := <-sent; first != to; first = <-sent {
				require.True(t, moved.Load(), "the old master refuses")
			}
			require.Empty(t, sent)
			moved.Store(true)
		}
	})
}

// half returns the slots of a cluster of two masters. The slot of "foo" is in the half that moves.
func half(moved bool) []redis.ClusterSlot {
	upper := "127.0.0.1:1"
	if moved {
		upper = "127.0.0.1:2"
	}
	return []redis.ClusterSlot{
		{Start: 0, End: 8191, Nodes: []redis.ClusterNode{{Addr: "127.0.0.1:1"}}},
		{Start: 8192, End: 16383, Nodes: []redis.ClusterNode{{Addr: upper}}},
	}
}

// TestOnlyCallOfABatchLendsItsCtx: the ctx of a batch of one call has the values of the ctx of [Node.Post], as traces
// need them. The ctx of a batch of several calls has no values. Both end with their commands, not with that ctx.
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
		n.Post(caller, within(Command("set"), time.Minute))
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
			post(n, within(Command("hold"), time.Minute))
			<-g.sent
		}
		n.Post(caller, within(Command("set"), time.Minute))
		two := post(n, Command("set"))
		g.open()
		requireOK(t, false, <-two)
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
			if isNotDone(do(n, within(Command("set"), time.Second)).Err) {
				notDone++
			}
			synctest.Wait()
			busy, lost := n.couriersAtWork()
			require.Zero(t, busy)
			require.Equal(t, min(i+1, n.mostLost), lost)
		}
		require.Len(t, g.sent, n.mostLost)
		require.Equal(t, calls-n.mostLost, notDone)
		waits := post(n, Command("set"))
		g.open()
		requireOK(t, false, <-waits)
		requireIdle(t, n)
	})
}

// TestCallsInTheMailboxFollowAStuckCourier: they are sent once a stuck courier is replaced. No further
// call has to be posted for that.
func TestCallsInTheMailboxFollowAStuckCourier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, g := gated(t)
		stuck := post(n, within(Command("stuck"), time.Second))
		<-g.sent
		for range couriers - 1 {
			post(n, within(Command("stuck"), time.Hour))
			<-g.sent
		}
		next := post(n, within(Command("next"), time.Hour))
		synctest.Wait()
		require.Empty(t, g.sent)
		<-stuck
		require.Equal(t, batch{{"next"}}, <-g.sent)
		g.open()
		requireOK(t, false, <-next)
	})
}

// TestSilentIsANodeThatAnsweredNothingDuringACall: a refusal is an answer. A silent node sends each call alone, since
// old connections may be dead while new ones work.
func TestSilentIsANodeThatAnsweredNothingDuringACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		defer g.open()
		n := answered(t, func(sent batch) error {
			switch sent[0][0] {
			case "hang":
				g.pass(sent)
			case "refuse":
				return answer("NOPERM no")
			}
			return nil
		})
		hang := func(timeout time.Duration) <-chan Reply { return post(n, within(Command("hang"), timeout)) }
		require.False(t, silent(n), "nothing was sent yet")
		slow := hang(time.Second)
		time.Sleep(500 * time.Millisecond)
		requireOK(t, false, do(n, Command("ping")))
		require.Error(t, (<-slow).Err)
		require.False(t, silent(n), "it answered meanwhile")

		for _, speaks := range []string{"ping", "refuse"} {
			time.Sleep(time.Millisecond) // otherwise the next call begins at the instant of the answer
			for range 2 {
				require.Error(t, (<-hang(time.Second)).Err)
				require.True(t, silent(n))
			}
			do(n, Command(speaks))
			require.False(t, silent(n))
		}

		time.Sleep(time.Millisecond)
		for len(g.sent) > 0 {
			<-g.sent
		}
		for range couriers {
			hang(time.Second)
			<-g.sent
		}
		time.Sleep(500 * time.Millisecond)
		for range 3 {
			hang(time.Minute)
		}
		time.Sleep(time.Second)
		require.True(t, silent(n))
		for range 3 {
			require.Equal(t, batch{{"hang"}}, <-g.sent)
		}
		g.open()
		requireIdle(t, n)
	})
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
					if r := do(n, Command("ping")); r.Err != nil {
						t.Error(r.Err)
					}
				}
			})
		}
		all.Wait()
		require.Less(t, int(trips.Load()), callers*rounds/2)
	})
}

// TestDoneMayPostCalls: after an answer and after a timeout. Calls that were answered together are followed together.
func TestDoneMayPostCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, g := gated(t)
		g.occupy(n)
		var ends []<-chan Reply
		for i := range 10 {
			end := make(chan Reply, 1)
			ends = append(ends, end)
			c := within(Command("first"), time.Duration(i%2+1)*time.Minute)
			c.Done = func(Reply) {
				next := within(Command("next"), time.Hour)
				next.Done = func(r Reply) { end <- r }
				n.Post(t.Context(), next)
			}
			n.Post(t.Context(), c)
		}
		time.Sleep(90 * time.Second) // half of the first calls have timed out
		g.open()
		for _, end := range ends {
			requireOK(t, false, <-end)
		}
		require.Len(t, <-g.sent, 10, "five of the next, and five of the first")
		require.Len(t, <-g.sent, 5)
	})
}

// TestCallsBehindACourierThatYielded: a courier that yielded takes one batch of what has been posted meanwhile, and another
// courier takes the rest.
func TestCallsBehindACourierThatYielded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, g := gated(t)
		n.mu.Lock()
		n.busy++
		n.back++
		n.mu.Unlock()
		for range longestBatch + 1 {
			post(n, Command("ping"))
		}
		synctest.Wait()
		require.Empty(t, g.sent)
		n.mu.Lock()
		n.back--
		n.mu.Unlock()
		go n.courier()
		synctest.Wait()
		require.Len(t, g.sent, 2, "while the first batch is under way")
		require.Equal(t, longestBatch+1, len(<-g.sent)+len(<-g.sent))
		g.open()
		requireIdle(t, n)
	})
}
