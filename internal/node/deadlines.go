package node

import (
	"time"

	"github.com/redlatch/redlatch/internal/clock"
)

// tick is the least time between two runs of the timer.
const tick = time.Millisecond

// deadlines has the calls that have not ended in a binary heap, by when the node must look at them
// next. Each call knows its index. container/heap would cost each call a twentieth more.
type deadlines struct {
	calls []*Call
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
	d.calls = append(d.calls, c)
	d.up(len(d.calls)-1, c)
	d.fireBy(c.due, now)
}

// again plans the next look at c.
func (d *deadlines) again(c *Call, now clock.Mono) {
	c.due = c.nextLook(now)
	d.move(c.at, c)
	d.fireBy(c.due, now)
}

// end takes c out. It is over.
func (d *deadlines) end(c *Call) {
	last := len(d.calls) - 1
	moved := d.calls[last]
	d.calls[last], d.calls = nil, d.calls[:last]
	if moved != c {
		d.move(c.at, moved)
	}
	c.at = over
}

// move puts c where it belongs, which is i or above or below it.
func (d *deadlines) move(i int, c *Call) {
	for {
		child := 2*i + 1
		if right := child + 1; right < len(d.calls) && d.calls[right].due < d.calls[child].due {
			child = right
		}
		if child >= len(d.calls) || c.due <= d.calls[child].due {
			break
		}
		d.set(i, d.calls[child])
		i = child
	}
	d.up(i, c)
}

// up puts c at i or above it.
func (d *deadlines) up(i int, c *Call) {
	for i > 0 && c.due < d.calls[(i-1)/2].due {
		d.set(i, d.calls[(i-1)/2])
		i = (i - 1) / 2
	}
	d.set(i, c)
}

func (d *deadlines) set(i int, c *Call) { d.calls[i], c.at = c, i }
