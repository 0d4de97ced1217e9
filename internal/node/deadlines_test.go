package node

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestManyCallsEndAtTheCostOfFew: the cost of the end of a call hardly depends on how many others
// there are.
func TestManyCallsEndAtTheCostOfFew(t *testing.T) {
	ends := func(calls int) time.Duration {
		begin := time.Now()
		synctest.Test(t, func(t *testing.T) {
			n, g := gated(t)
			for range couriers { // the others wait in the mailbox
				post(n, Command("hold"))
				<-g.sent
			}
			var ended atomic.Int64
			for i := range calls {
				c := within(Command("set"), time.Duration(i)*2*time.Millisecond+time.Second)
				c.Done = func(Reply) { ended.Add(1) }
				n.Post(t.Context(), c)
			}
			time.Sleep(time.Duration(calls+1000) * 2 * time.Millisecond)
			require.EqualValues(t, calls, ended.Load())
			g.open()
			requireIdle(t, n)
		})
		return time.Since(begin)
	}
	const few, factor = 1_000, 10
	for tries := 1; ; tries++ {
		one, all := ends(few), ends(factor*few)
		if all < 3*factor*one {
			return
		}
		require.Less(t, tries, 3, "%v, and %v for %d times as many", one, all, factor)
	}
}

// TestFirstCallIsDueFirst: whatever is added, planned anew and taken out.
func TestFirstCallIsDueFirst(t *testing.T) {
	d := deadlines{timer: time.NewTimer(time.Hour)}
	defer d.timer.Stop()
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // it repeats
	for range 10_000 {
		n := len(d.looks)
		switch step := random.IntN(4); {
		case n == 0, n < 100 && step < 2:
			d.add(&Call{times: times{deadline: ms(random.IntN(1000))}}, 0)
		case step == 2:
			c := d.looks[random.IntN(n)].call
			c.deadline = ms(random.IntN(1000))
			d.again(c, 0)
		default:
			c := d.looks[random.IntN(n)].call
			d.end(c)
			require.Equal(t, over, c.at)
		}
		for i, l := range d.looks {
			if i != l.call.at || l.due < d.looks[0].due {
				t.Fatal(i, l.call.at, l.due, d.looks[0].due)
			}
		}
	}
}
