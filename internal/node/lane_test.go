package node

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// ordered returns a call that is sent after those on its key.
func ordered(key, name string, timeout time.Duration) *Call {
	c := within(Command(name), timeout)
	c.Key, c.Ordered = key, true
	return c
}

// TestOrderedCallsAreSentOneAfterTheOther: each call is sent once the one before it has returned. Calls on
// other keys do not wait.
func TestOrderedCallsAreSentOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		steps := make(chan error)
		sent := make(chan string, 10)
		n := answered(t, func(b batch) error {
			sent <- b[0][0]
			if b[0][0] == "other" {
				return nil
			}
			return <-steps
		})
		var calls []*posted
		for i := range 4 {
			calls = append(calls, post(t.Context(), n, ordered("k", fmt.Sprint("call", i), time.Minute)))
		}
		require.Equal(t, "call0", <-sent)
		requireOK(t, false, n.Do(t.Context(), ordered("other", "other", time.Minute)))
		require.Equal(t, "other", <-sent)
		for i, p := range calls {
			if i == 2 { // a call that is sent again keeps its turn
				steps <- answer("LOADING")
				require.Equal(t, "call2", <-sent)
			}
			synctest.Wait()
			require.Empty(t, sent)
			steps <- nil
			r := p.wait(t)
			requireOK(t, false, r)
			require.False(t, r.Overtaken)
			if i < 3 {
				require.Equal(t, fmt.Sprint("call", i+1), <-sent)
			}
		}
		requireIdle(t, n)
	})
}

// TestEndedCallHoldsUpTheNextNoLongerThanItsTimeout: the command of the ended call may hang
// forever. Its reply is reported late, and says that the call was overtaken.
func TestEndedCallHoldsUpTheNextNoLongerThanItsTimeout(t *testing.T) {
	for name, c := range map[string]struct {
		first, next time.Duration // their timeouts
		at          time.Duration // when the next is sent; the first ends at 100 ms
	}{
		"a patient call waits for the timeout of the first": {time.Second, 10 * time.Second, time.Second},
		"another call waits for half of its own timeout":    {time.Minute, time.Second, 700 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, g := gated(t)
				late := make(chan Reply, 10)
				first := ordered("k", "first", c.first)
				first.Late = func(r Reply) { late <- r }
				begin := time.Now()
				post(t.Context(), n, first)
				<-g.sent
				time.Sleep(100 * time.Millisecond)
				first.Cancel(errors.New("not needed"))
				time.Sleep(100 * time.Millisecond)
				next := post(t.Context(), n, ordered("k", "next", c.next))
				require.Equal(t, batch{{"next"}}, <-g.sent)
				require.Equal(t, c.at, time.Since(begin).Truncate(10*time.Millisecond))
				require.Empty(t, late)
				g.open()
				r := <-late
				requireOK(t, false, r)
				require.True(t, r.Overtaken)
				requireOK(t, false, next.wait(t))
				synctest.Wait()
				require.Empty(t, late)
				requireIdle(t, n)
			})
		})
	}
}

// TestImpatientCallOvertakesAllBeforeIt: a call that does not wait for the queued one before it overtakes the one
// under way as well.
func TestImpatientCallOvertakesAllBeforeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, g := gated(t)
		first := post(t.Context(), n, ordered("k", "first", time.Minute))
		require.Equal(t, batch{{"first"}}, <-g.sent)
		second := post(t.Context(), n, ordered("k", "second", time.Minute))
		post(t.Context(), n, ordered("k", "third", time.Second))
		require.Equal(t, batch{{"third"}}, <-g.sent)
		g.open()
		for _, p := range []*posted{first, second} {
			r := p.wait(t)
			requireOK(t, false, r)
			require.True(t, r.Overtaken)
		}
		requireIdle(t, n)
	})
}

// TestEndedCallThatReturnsFreesItsLane: it frees the lane at once, whatever timeouts are left.
func TestEndedCallThatReturnsFreesItsLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, g := gated(t)
		first := post(t.Context(), n, ordered("k", "first", time.Hour))
		<-g.sent
		first.Cancel(errors.New("not needed"))
		begin := time.Now()
		next := post(t.Context(), n, ordered("k", "next", time.Hour))
		time.Sleep(time.Second)
		g.open()
		r := next.wait(t)
		requireOK(t, false, r)
		require.False(t, r.Overtaken)
		require.Less(t, time.Since(begin), time.Minute)
		requireIdle(t, n)
	})
}

// TestCallThatEndsInItsLaneIsNeverSent: the calls behind it take its place.
func TestCallThatEndsInItsLaneIsNeverSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, g := gated(t)
		var calls []*posted
		for i := range 5 {
			calls = append(calls, post(t.Context(), n, ordered("k", fmt.Sprint(i), time.Hour)))
		}
		require.Equal(t, batch{{"0"}}, <-g.sent)
		for _, i := range []int{2, 1, 4} {
			calls[i].Cancel(errors.New("not needed"))
			require.ErrorAs(t, calls[i].wait(t).Err, new(*NotDone))
		}
		g.open()
		require.Equal(t, batch{{"3"}}, <-g.sent)
		requireOK(t, false, calls[3].wait(t))
		time.Sleep(2 * time.Hour)
		require.Empty(t, g.sent)
		requireIdle(t, n)
	})
}

// TestLanesLoseNoCall: callers stay or leave at any time, on few keys, with a client that is slow or
// fails. Each call ends in time.
func TestLanesLoseNoCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := answered(t, func(batch) error {
			time.Sleep(rand.N(20 * time.Millisecond))
			switch rand.N(10) {
			case 0:
				return errTimeout
			case 1:
				return errLoading
			}
			return nil
		})
		var wg sync.WaitGroup
		for range 32 {
			wg.Go(func() {
				for range 200 {
					ctx, cancel := context.WithTimeout(t.Context(), rand.N(200*time.Millisecond))
					c := ordered(fmt.Sprint("k", rand.N(4)), "set", rand.N(200*time.Millisecond)+time.Millisecond)
					c.OutlivesCaller = rand.N(4) == 0
					begin, timeout := time.Now(), c.Timeout
					n.Do(ctx, c)
					if took := time.Since(begin); took > timeout+2*tick {
						t.Errorf("a call of %v took %v", timeout, took)
					}
					cancel()
				}
			})
		}
		wg.Wait()
		time.Sleep(time.Minute)
		requireIdle(t, n)
	})
}
