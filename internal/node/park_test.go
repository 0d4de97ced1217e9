package node

import (
	"io"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/clock"
)

// TestSickServerIsNotStormed: while a server refuses everything, 300 renewals and 300 calls that
// somebody waits for, each of which is made anew when it has failed, make few batches, and few
// commands. Each renewal is sent nevertheless. When the server is well again, all calls under way
// succeed within a moment.
func TestSickServerIsNotStormed(t *testing.T) {
	for name, fails := range map[string]error{"answers": errLoading, "breaks": io.EOF, "cannot be reached": errDial} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex // guards the variables below
				var batches, words, ok, made int
				sick, sent := true, make(map[string]bool)
				n := answered(t, func(b commands) error {
					mu.Lock()
					defer mu.Unlock()
					batches++
					words += len(b)
					for _, said := range b {
						sent[said[1]] = true
					}
					if sick {
						return fails
					}
					return nil
				})
				var call func(urgent bool)
				call = func(urgent bool) {
					mu.Lock()
					made++
					id := strconv.Itoa(made)
					mu.Unlock()
					c := within(Command("set", id), time.Second)
					c.Urgent = urgent
					c.Done = func(r Reply) {
						mu.Lock()
						defer mu.Unlock()
						if urgent && !sent[id] {
							t.Error("a renewal was not sent")
						}
						if r.Err == nil {
							ok++
						} else if sick {
							time.AfterFunc(250*time.Millisecond, func() { call(urgent) })
						}
					}
					n.Post(t.Context(), c)
				}
				for i := range 600 {
					call(i%2 == 0)
					time.Sleep(2 * time.Millisecond)
				}
				const seconds = 20
				time.Sleep(time.Second) // the first sends of all
				mu.Lock()
				batches, words = 0, 0
				mu.Unlock()
				time.Sleep(seconds * time.Second)
				mu.Lock()
				require.Less(t, words, 500*seconds)
				require.Less(t, batches, 20*seconds)
				require.Greater(t, words, 200*seconds, "each renewal is sent")
				sick = false
				mu.Unlock()
				time.Sleep(2 * waitedPause)
				mu.Lock()
				require.Greater(t, ok, 300)
				mu.Unlock()
				time.Sleep(time.Minute)
				requireIdle(t, n)
			})
		})
	}
}

// TestProbeHasTimeLeft: calls come all the time while the server fails. Each round sends one that has just come.
func TestProbeHasTimeLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // guards the variables below
		came, sent, old := make(map[string]time.Time), 0, 0
		n := answered(t, func(b commands) error {
			mu.Lock()
			defer mu.Unlock()
			for _, said := range b {
				if sent++; time.Since(came[said[1]]) > 20*time.Millisecond {
					old++
				}
			}
			return io.EOF
		})
		for i := range 1000 {
			id := strconv.Itoa(i)
			mu.Lock()
			came[id] = time.Now()
			mu.Unlock()
			post(n, within(Command("set", id), time.Second))
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		requireIdle(t, n)
		require.Greater(t, sent, 10)
		require.Less(t, old, 10, "of %d", sent)
	})
}

// TestBackgroundProbesSeldom: while nobody waits for a reply, the pause grows to a second. A call
// that somebody waits for is sent soon.
func TestBackgroundProbesSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent atomic.Int64
		n := answered(t, func(commands) error { sent.Add(1); return io.EOF })
		for range 50 {
			c := within(Command("del"), time.Second)
			c.Insists = true
			post(n, c)
		}
		time.Sleep(20 * time.Second)
		sent.Store(0)
		time.Sleep(30 * time.Second)
		require.Less(t, sent.Load(), int64(2*30))
		sent.Store(0)
		require.Error(t, do(n, within(Command("set"), time.Second)).Err)
		require.Positive(t, sent.Load())
		time.Sleep(2 * insistFor)
		requireIdle(t, n)
	})
}

// TestOtherServersOfAClientAreNotHeldUp: a client that may have several servers sends new calls
// while calls to one of them fail, and an answer to any of them has the others sent again.
func TestOtherServersOfAClientAreNotHeldUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var well atomic.Bool
		n := answered(t, func(sent commands) error {
			if !well.Load() && sent[0][0] == "dead" {
				return answer("CLUSTERDOWN Hash slot not served")
			}
			return nil
		})
		n.limits = limits{together: 1, most: singleCouriers, mostWrittenOff: singleCouriers, several: true}
		var dead []<-chan Reply
		for range 100 {
			dead = append(dead, post(n, within(Command("dead"), time.Minute)))
		}
		time.Sleep(30 * time.Second)
		begin := time.Now()
		requireOK(t, false, do(n, Command("alive")))
		require.Zero(t, time.Since(begin))
		well.Store(true)
		for _, c := range dead {
			requireOK(t, false, <-c)
		}
		require.Less(t, time.Since(begin), 2*waitedPause)
		requireIdle(t, n)
	})
}

// TestUrgentCallsGoFirst: in their order, and before all others in the mailbox.
func TestUrgentCallsGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, g := gated(t)
		n.most = 1 // batches leave one after the other
		post(n, Command("first"))
		<-g.sent
		for i := range 3 * longestBatch {
			c := Command("set", i)
			c.Urgent = i%3 == 0
			post(n, c)
		}
		synctest.Wait()
		g.open()
		var order []int
		for len(order) < 3*longestBatch {
			for _, words := range <-g.sent {
				i, _ := strconv.Atoi(words[1])
				order = append(order, i)
			}
		}
		require.True(t, slices.IsSorted(order[:longestBatch]))
		require.True(t, slices.IsSorted(order[longestBatch:]))
		for _, i := range order[:longestBatch] {
			require.Zero(t, i%3)
		}
		requireIdle(t, n)
	})
}

// TestRepeatSaysTheTimeOfTheFirstSend: what creates or keeps something says until when, in each
// send of the minute in which the call insists. If the clock of Redis was not known, the refusal
// says it, also after that time.
func TestRepeatSaysTheTimeOfTheFirstSend(t *testing.T) {
	for name, c := range map[string]struct {
		knows bool  // the time of Redis, before
		fails error // for 20 s
		began time.Duration
	}{
		"refused":                  {true, errLoading, 0},
		"silent":                   {true, nil, 0},
		"the time is not known":    {false, errLoading, 0},
		"a second call":            {true, errLoading, 10 * time.Second},
		"a right is missing":       {true, answer("NOPERM no"), 0},
		"none, and begun long ago": {false, nil, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				var mu sync.Mutex // guards said
				var said []int64
				n := answered(t, func(sent commands) error {
					latest, _ := strconv.ParseInt(sent[0][4], 10, 64)
					if sent[0][3] == "warm" {
						return byClock(sent, 0)
					}
					if latest > 0 {
						mu.Lock()
						said = append(said, latest)
						mu.Unlock()
					}
					switch {
					case time.Since(begin) > 20*time.Second && latest > 0:
						return nil
					case time.Since(begin) > 20*time.Second:
						return late(0)
					case c.fails == nil:
						time.Sleep(15 * time.Second)
						return redis.ErrPoolTimeout
					}
					return c.fails
				})
				if c.knows {
					requireOK(t, false, do(n, creates("warm")))
				}
				call := creates("k")
				call.Insists = true
				if c.began > 0 {
					call.Began = clock.MonoOf(begin.Add(-c.began))
				}
				require.Error(t, do(n, call).Err)
				time.Sleep(2 * insistFor)
				mu.Lock()
				defer mu.Unlock()
				require.NotEmpty(t, said)
				for _, latest := range said {
					require.InDelta(t, begin.Add(900*time.Millisecond-c.began).UnixMicro(), latest, 1)
				}
				requireIdle(t, n)
			})
		})
	}
}

// TestSlowAnswerDoesNotShortenTheNextTry: the first answer was under way for long, so that its time
// says little. A second call, and a third send of the first, use what a faster one has said.
func TestSlowAnswerDoesNotShortenTheNextTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		back := []time.Duration{1600 * time.Millisecond, 0, 0}
		sends := 0
		n := answered(t, func(sent commands) error {
			time.Sleep(500 * time.Millisecond) // the way there
			err := byClock(sent, 0)
			if err != nil {
				time.Sleep(back[sends])
			}
			sends++
			return err
		})
		requireOK(t, false, do(n, within(creates("k"), 4*time.Second)))
		require.Equal(t, 3, sends)
		requireOK(t, false, do(n, within(creates("k"), 4*time.Second)))
		require.Equal(t, 4, sends)
		n.clock.told(clock.Redis(time.Now().Add(-time.Second).UnixNano()), clock.MonoNow())
		requireOK(t, false, do(n, within(creates("k"), time.Second)))
		require.Equal(t, 5, sends, "a slow answer says less")
	})
}
