package node

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/rediserr"
)

// TestSpareCallsDoNotPileUp: while a server refuses connections or says nothing, few spare calls wait
// for it, and the others end at once, as not done. All are sent again when it answers.
func TestSpareCallsDoNotPileUp(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var well atomic.Bool
			n := answered(t, func(commands) error {
				switch {
				case well.Load():
					return nil
				case hangs:
					time.Sleep(2 * time.Second)
				}
				return errDial
			})
			var carriedOut, refused atomic.Int64
			second := func() (held int) {
				carriedOut.Store(0)
				refused.Store(0)
				for range 1000 {
					begin, c := time.Now(), within(Command("set"), time.Second)
					c.Spare = true
					c.Done = func(r Reply) {
						switch {
						case r.Err == nil:
							carriedOut.Add(1)
						case time.Since(begin) == 0:
							require.ErrorAs(t, r.Err, new(*rediserr.NotDone))
							refused.Add(1)
						}
					}
					n.Post(t.Context(), c)
					time.Sleep(time.Millisecond)
				}
				n.mu.Lock()
				defer n.mu.Unlock()
				return len(n.looks)
			}
			second() // which shows that it is dead
			for range 60 {
				require.LessOrEqual(t, second(), mostSpare+couriers)
				require.Greater(t, refused.Load(), int64(800))
			}
			well.Store(true)
			time.Sleep(3 * time.Second)
			second()
			require.Equal(t, int64(1000), carriedOut.Load())
			time.Sleep(time.Minute)
			require.True(t, idle(n))
		})
	}
}

// TestABurstAtAWellServerIsServed: only one that is silent or ill has its spare calls refused.
func TestABurstAtAWellServerIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := answered(t, func(commands) error { time.Sleep(time.Millisecond); return nil })
		var all []<-chan Reply
		for range 10 * mostSpare {
			c := within(Command("set"), time.Second)
			c.Spare = true
			all = append(all, post(n, c))
		}
		for _, got := range all {
			require.NoError(t, (<-got).Err)
		}
	})
}

// TestOnlySpareCallsAreRefused: others wait for their timeouts, however many there are.
func TestOnlySpareCallsAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended atomic.Int64
		n := answered(t, func(commands) error { return errDial })
		for range 10 * mostSpare {
			c := within(Command("set"), time.Second)
			c.Done = func(Reply) { ended.Add(1) }
			n.Post(t.Context(), c)
		}
		time.Sleep(time.Second / 2)
		require.Zero(t, ended.Load())
		time.Sleep(time.Second)
		require.Equal(t, int64(10*mostSpare), ended.Load())
		time.Sleep(time.Minute)
	})
}
