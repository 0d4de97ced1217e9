package pipe

import (
	"os"
	"sync"
	"time"
)

// A Pipe is one direction of a connection. Bytes arrive in chunks, each at its time.
type Pipe struct {
	mu       sync.Mutex // guards the fields below
	chunks   []chunk
	last     time.Time     // when the newest chunk arrives
	held     bool          // nothing arrives
	end      error         // what the reader gets after the chunks; nil: the pipe is open
	ends     time.Time     // when it gets that
	deadline time.Time     // of reads
	changed  chan struct{} // closed by the next change; nil: nobody waits for one
}

type chunk struct {
	at    time.Time
	bytes []byte
}

// Send adds bytes that arrive after a delay, and not before earlier ones. The caller must not change
// them any more. A pipe that has ended drops them.
func (p *Pipe) Send(b []byte, delay time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end != nil {
		return
	}
	p.last = later(p.last, time.Now().Add(delay))
	p.chunks = append(p.chunks, chunk{p.last, b})
	p.notifyLocked()
}

// Finish has the reader get err, behind what was sent. Only the first call has an effect.
func (p *Pipe) Finish(err error, delay time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end == nil {
		p.end, p.ends = err, later(p.last, time.Now().Add(delay))
	}
	p.notifyLocked()
}

// Reset has the reader get err at once. What has not arrived is lost.
func (p *Pipe) Reset(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.chunks, p.held, p.end, p.ends = nil, false, err, time.Now()
	p.notifyLocked()
}

// Ended reports whether Finish or Reset was called.
func (p *Pipe) Ended() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.end != nil
}

// Hold keeps everything back until it is called with false.
func (p *Pipe) Hold(held bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = held
	p.notifyLocked()
}

// Hurry has everything that is under way arrive within d.
func (p *Pipe) Hurry(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	by := time.Now().Add(d)
	hurry := func(at *time.Time) {
		if at.After(by) {
			*at = by
		}
	}
	for i := range p.chunks {
		hurry(&p.chunks[i].at)
	}
	hurry(&p.last)
	hurry(&p.ends)
	p.notifyLocked()
}

// SetDeadline bounds reads, those under way too. A zero time is none.
func (p *Pipe) SetDeadline(t time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deadline = t
	p.notifyLocked()
}

func (p *Pipe) notifyLocked() {
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

// Read waits until something has arrived, or the pipe has ended.
func (p *Pipe) Read(b []byte) (int, error) {
	for len(b) > 0 {
		n, next, changed, err := p.take(b)
		if n > 0 || err != nil {
			return n, err
		}
		if next.IsZero() {
			<-changed
			continue
		}
		timer := time.NewTimer(time.Until(next))
		select {
		case <-changed:
		case <-timer.C:
		}
		timer.Stop()
	}
	return 0, nil
}

// take returns what has arrived, or else when to look again: when something changes, and at a time
// if that is not zero.
func (p *Pipe) take(b []byte) (n int, next time.Time, changed <-chan struct{}, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if !p.deadline.IsZero() && !now.Before(p.deadline) {
		return 0, next, nil, os.ErrDeadlineExceeded
	}
	if n = p.arrivedLocked(b, now); n > 0 {
		return n, next, nil, nil
	}
	next = p.deadline
	switch {
	case p.held:
	case len(p.chunks) > 0:
		next = earlier(p.chunks[0].at, next)
	case p.end != nil && !now.Before(p.ends):
		return 0, next, nil, p.end
	case p.end != nil:
		next = earlier(p.ends, next)
	}
	if p.changed == nil {
		p.changed = make(chan struct{}) // by the reader, so that it is in the bubble of the reader
	}
	return 0, next, p.changed, nil
}

// arrivedLocked moves what has arrived by now to b.
func (p *Pipe) arrivedLocked(b []byte, now time.Time) (n int) {
	for !p.held && len(p.chunks) > 0 && n < len(b) && !p.chunks[0].at.After(now) {
		c := &p.chunks[0]
		copied := copy(b[n:], c.bytes)
		n += copied
		c.bytes = c.bytes[copied:]
		if len(c.bytes) == 0 {
			*c = chunk{}
			p.chunks = p.chunks[1:]
		}
	}
	return n
}

// later returns the later one of two times.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// earlier returns the earlier one of two times. If the second is zero, it does not count.
func earlier(a, b time.Time) time.Time {
	if b.IsZero() || a.Before(b) {
		return a
	}
	return b
}
