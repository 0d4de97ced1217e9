package node

import (
	"container/heap"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
)

// tick is the least time between two runs of the timer.
const tick = time.Millisecond

// deadlines has the calls that have not ended in a heap, by when the node must look at them next.
type deadlines struct {
	calls byDue
	timer *time.Timer
	fires clock.Mono // when timer fires; 0: it is not set
}

// fireBy has the timer fire at the time at or earlier, but not within a tick.
func (d *deadlines) fireBy(at, now clock.Mono) {
	at = max(at, now.Add(tick))
	if d.fires == 0 || d.fires > at {
		d.fires = at
		d.timer.Reset(at.Sub(now))
	}
}

func (d *deadlines) add(c *Call, now clock.Mono) {
	c.due = c.nextLook(now)
	heap.Push(&d.calls, c)
	d.fireBy(c.due, now)
}

// again plans the next look at c.
func (d *deadlines) again(c *Call, now clock.Mono) {
	c.due = c.nextLook(now)
	heap.Fix(&d.calls, c.at)
	d.fireBy(c.due, now)
}

// end takes c out. It is over.
func (d *deadlines) end(c *Call) {
	heap.Remove(&d.calls, c.at)
	c.at = over
}

// byDue is a [heap.Interface]. Each call knows its index.
type byDue []*Call

func (h byDue) Len() int           { return len(h) }
func (h byDue) Less(i, j int) bool { return h[i].due < h[j].due }

func (h byDue) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

func (h *byDue) Push(c any) {
	c.(*Call).at = len(*h)
	*h = append(*h, c.(*Call))
}

func (h *byDue) Pop() any {
	last := len(*h) - 1
	c := (*h)[last]
	(*h)[last], *h = nil, (*h)[:last]
	return c
}
