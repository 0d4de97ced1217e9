package node

import (
	"cmp"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/clock"
)

// partly answers each command by its words, as a fake does that gets it alone.
func partly(serve func(words []string) error) fake {
	return func(sent commands) error {
		var each replies
		for _, words := range sent {
			err := serve(words)
			var reply replies
			if !errors.As(err, &reply) {
				reply = replies{cmp.Or[any](err, "OK")}
			}
			each = append(each, reply...)
		}
		return each
	}
}

// loop posts calls, one after the other, until the test ends. Each is posted a pause after the one
// before has ended. seen gets the outcome of each, and how long it took.
func loop(t *testing.T, n *Node, pause time.Duration, next func() *Call, seen func(r Reply, took time.Duration)) {
	var call func()
	call = func() {
		begin, c := time.Now(), within(next(), time.Second)
		c.Done = func(r Reply) {
			seen(r, time.Since(begin))
			if t.Context().Err() == nil {
				time.AfterFunc(pause, call)
			}
		}
		n.Post(t.Context(), c)
	}
	call()
}

func sick(words []string) bool { return strings.HasPrefix(words[1], "sick") }

// TestSickKeyHoldsUpNoOther: calls of other keys are not delayed by those of keys that fail. If the
// failure sounds as if it was about the whole server, those of each kind wait until one of them has
// shown that it is not.
func TestSickKeyHoldsUpNoOther(t *testing.T) {
	for name, c := range map[string]struct {
		fails   error
		delayed int64 // calls, at most
	}{
		"behind a proxy":        {answer("ERR no upstream host"), 0},
		"full":                  {answer("OOM command not allowed"), 0},
		"a hook of the client":  {errors.New("tenant unknown"), 0},
		"a server that loads":   {errLoading, 20},
		"a server that is dead": {io.EOF, 20},
	} {
		for _, callers := range []int{1, 10} {
			t.Run(name+", "+strconv.Itoa(callers), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var sent, calls, delayed atomic.Int64
					n := answered(t, partly(func(words []string) error {
						if sick(words) {
							sent.Add(1)
							return c.fails
						}
						return nil
					}))
					for i := range callers {
						loop(t, n, 0, func() *Call { return Command("set", "sick"+strconv.Itoa(i)) }, func(r Reply, _ time.Duration) {
							if r.Err == nil {
								t.Error("it has failed")
							}
						})
					}
					for kind, set := range []func(*Call){func(*Call) {}, func(c *Call) { c.Urgent = true }, func(c *Call) { c.Insists = true }} {
						loop(t, n, 20*time.Millisecond, func() *Call {
							c := Command("set", "well"+strconv.Itoa(kind))
							set(c)
							return c
						}, func(r Reply, took time.Duration) {
							calls.Add(1)
							if took > 0 {
								delayed.Add(1)
							}
							if r.Err != nil || took > 2*waitedPause {
								t.Error(r.Err, took)
							}
						})
					}
					const seconds = 20
					time.Sleep(seconds * time.Second)
					require.LessOrEqual(t, delayed.Load(), c.delayed)
					require.Greater(t, calls.Load(), int64(3*45*seconds))
					require.LessOrEqual(t, sent.Load(), int64(25*seconds*callers), "each of them pauses")
				})
			})
		}
	}
}

// TestManyThatFailAreNotManyCommands: 600 callers of keys that fail, each of them anew when it has
// failed, make a bounded number of resends. When the keys are well again, all calls under way
// succeed within a moment.
func TestManyThatFailAreNotManyCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var well atomic.Bool
		var sent, calls, ok atomic.Int64
		n := answered(t, partly(func([]string) error {
			sent.Add(1)
			if well.Load() {
				return nil
			}
			return answer("ERR no upstream host")
		}))
		for i := range 600 {
			loop(t, n, 250*time.Millisecond, func() *Call {
				calls.Add(1)
				c := Command("set", "sick")
				c.Urgent = i%2 == 0
				return c
			}, func(r Reply, _ time.Duration) {
				if r.Err == nil {
					ok.Add(1)
				}
			})
			time.Sleep(2 * time.Millisecond)
		}
		const seconds = 20
		time.Sleep(2 * time.Second)
		sent.Store(0)
		calls.Store(0)
		time.Sleep(seconds * time.Second)
		require.LessOrEqual(t, sent.Load()-calls.Load(), int64(seconds*time.Second/roundEvery))
		require.Zero(t, ok.Load())
		well.Store(true)
		time.Sleep(2 * waitedPause)
		require.Greater(t, ok.Load(), int64(400))
	})
}

// TestWritesThatAreRefusedStormNoServerThatReads: 300 renewals and 300 releases fail since the
// server takes no writes, such as a replica or one without replicas. Each of them is made anew when
// it has failed. Reads succeed beside them, at once. They do not have the writes sent again, and
// neither do the few writes that succeed, so few batches have a refusal: go-redis opens a new
// connection for each one with READONLY.
func TestWritesThatAreRefusedStormNoServerThatReads(t *testing.T) {
	for _, fails := range []answer{"READONLY no", "NOREPLICAS no", "MISCONF no"} {
		synctest.Test(t, func(t *testing.T) {
			var well atomic.Bool
			var writes, batches, reads, slow, ok atomic.Int64
			n := answered(t, func(sent commands) error {
				refused := false
				err := partly(func(words []string) error {
					if words[0] == "get" || well.Load() {
						return nil
					}
					writes.Add(1)
					refused = true
					return fails
				})(sent)
				if refused {
					batches.Add(1)
				}
				return err
			})
			for i := range 600 {
				loop(t, n, 250*time.Millisecond, func() *Call {
					c := Command("set", strconv.Itoa(i))
					c.Urgent, c.Insists = i%2 == 0, i%2 == 1
					return c
				}, func(r Reply, _ time.Duration) {
					if r.Err == nil {
						ok.Add(1)
					}
				})
				time.Sleep(2 * time.Millisecond)
			}
			loop(t, n, 5*time.Millisecond, func() *Call { return Command("get", "k") }, func(r Reply, took time.Duration) {
				reads.Add(1)
				if took > 0 {
					slow.Add(1)
				}
				if r.Err != nil {
					t.Error(r.Err)
				}
			})
			const seconds = 20
			time.Sleep(2 * time.Second)
			writes.Store(0)
			batches.Store(0)
			reads.Store(0)
			slow.Store(0)
			time.Sleep(seconds * time.Second)
			require.Less(t, writes.Load(), int64(500*seconds))
			require.Less(t, batches.Load(), int64(20*seconds))
			require.Greater(t, reads.Load(), int64(190*seconds))
			require.Zero(t, slow.Load())
			well.Store(true)
			time.Sleep(2 * waitedPause)
			require.Greater(t, ok.Load(), int64(400))
		})
	}
}

// TestWhatGivesBackGoesBeforeWhatAsks: among the calls that are parked while the server is ill.
// Those that were refused go last.
func TestWhatGivesBackGoesBeforeWhatAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var well atomic.Bool
		var mu sync.Mutex // guards order
		var order []string
		n := answered(t, func(sent commands) error {
			if !well.Load() {
				return errLoading
			}
			mu.Lock()
			defer mu.Unlock()
			for _, words := range sent {
				order = append(order, words[1])
			}
			return nil
		})
		n.most, n.share = 1, shareOf(3)
		const each = 10
		for name := range strings.FieldsSeq(strings.Repeat("old-ask old-give ", each)) {
			c := within(Command("set", name), time.Minute)
			c.Insists = name == "old-give"
			post(n, c)
		}
		time.Sleep(10 * time.Second) // each was refused
		synctest.Wait()
		n.mu.Lock()
		n.illness.round = clock.MonoNow().Add(time.Second) // after the next calls
		n.mu.Unlock()
		for name := range strings.FieldsSeq(strings.Repeat("ask give ", each)) {
			c := within(Command("set", name), time.Minute)
			c.Insists = name == "give"
			post(n, c)
		}
		well.Store(true)
		time.Sleep(10 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		require.ElementsMatch(t, []string{"give", "ask"}, order[:2], "one of each kind shows that the server is well")
		var want []string
		for _, name := range []string{"give", "ask", "old-give", "old-ask"} {
			want = append(want, slices.Repeat([]string{name}, each)...)
		}
		want = slices.Delete(want, 0, 1) // one of each has left
		want = slices.Delete(want, each, each+1)
		require.Equal(t, want, order[2:])
	})
}

// TestCallThatIsNotServedInTimeSaysWhy: the server was ill for too long, though it answered all the time. Most calls
// were never sent. The others were refused, and some came too late once more.
func TestCallThatIsNotServedInTimeSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var mu sync.Mutex // guards sent
		sent := make(map[string]bool)
		n := answered(t, partly(func(words []string) error {
			mu.Lock()
			sent[words[3]] = true
			mu.Unlock()
			if time.Since(begin) < 950*time.Millisecond {
				return errLoading
			}
			return byClock(commands{words}, 0)
		}))
		calls := make(map[string]<-chan Reply)
		for i := range 50 {
			key := strconv.Itoa(i)
			calls[key] = post(n, creates(key))
			time.Sleep(time.Millisecond)
		}
		for key, call := range calls {
			r := <-call
			require.EqualError(t, r.Err, "still failing after 1s: "+errLoading.Error(), key)
			require.True(t, isNotDone(r.Err), key)
		}
		require.Less(t, len(sent), len(calls)/2)
	})
}
