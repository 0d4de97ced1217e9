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
	looks []look
	timer *time.Timer
	fires clock.Mono // when timer fires; 0: it is not set
}

// A look is when the node looks at a call. The heap compares the times that are in it, so it does not
// read the calls.
type look struct {
	due  clock.Mono
	call *Call
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
	l := look{c.nextLook(now), c}
	d.looks = append(d.looks, l)
	d.up(len(d.looks)-1, l)
	d.fireBy(l.due, now)
}

// again plans the next look at c.
func (d *deadlines) again(c *Call, now clock.Mono) {
	l := look{c.nextLook(now), c}
	d.move(c.at, l)
	d.fireBy(l.due, now)
}

// end takes c out. It is over.
func (d *deadlines) end(c *Call) {
	last := len(d.looks) - 1
	moved := d.looks[last]
	d.looks[last], d.looks = look{}, d.looks[:last]
	if moved.call != c {
		d.move(c.at, moved)
	}
	c.at = over
}

// move puts l where it belongs, which is i or above or below it.
func (d *deadlines) move(i int, l look) {
	for {
		child := 2*i + 1
		if right := child + 1; right < len(d.looks) && d.looks[right].due < d.looks[child].due {
			child = right
		}
		if child >= len(d.looks) || l.due <= d.looks[child].due {
			break
		}
		d.set(i, d.looks[child])
		i = child
	}
	d.up(i, l)
}

// up puts l at i or above it.
func (d *deadlines) up(i int, l look) {
	for i > 0 && l.due < d.looks[(i-1)/2].due {
		d.set(i, d.looks[(i-1)/2])
		i = (i - 1) / 2
	}
	d.set(i, l)
}

func (d *deadlines) set(i int, l look) { d.looks[i], l.call.at = l, i }
