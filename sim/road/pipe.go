package road

import (
	"net"
	"os"
	"sync"
	"time"
)

// A pipe is one direction of a connection. Bytes arrive in chunks, each at its time.
type pipe struct {
	mu       sync.Mutex // guards the fields below
	chunks   []chunk
	last     time.Time     // when the newest chunk arrives
	held     bool          // nothing arrives
	end      error         // what the reader gets after the chunks; nil: the pipe is open
	ends     time.Time     // when it gets that
	deadline time.Time     // of reads
	changed  chan struct{} // has room for one
}

type chunk struct {
	at    time.Time
	bytes []byte
}

func newPipe() *pipe { return &pipe{changed: make(chan struct{}, 1)} }

// send adds bytes that arrive after a delay, and not before earlier ones.
func (p *pipe) send(b []byte, delay time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end != nil {
		return
	}
	p.last = later(p.last, time.Now().Add(delay))
	p.chunks = append(p.chunks, chunk{p.last, b})
	p.notify()
}

// finish has the reader get err, behind what was sent. Only the first call has an effect.
func (p *pipe) finish(err error, delay time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end == nil {
		p.end, p.ends = err, later(p.last, time.Now().Add(delay))
	}
	p.notify()
}

// reset has the reader get err at once. What has not arrived is lost.
func (p *pipe) reset(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.chunks, p.held, p.end, p.ends = nil, false, err, time.Now()
	p.notify()
}

func (p *pipe) ended() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.end != nil
}

// hold keeps everything back until it is called with false.
func (p *pipe) hold(held bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = held
	p.notify()
}

func (p *pipe) setDeadline(t time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deadline = t
	p.notify()
}

func (p *pipe) notify() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// read is called by one goroutine at a time.
func (p *pipe) read(b []byte) (int, error) {
	for {
		n, next, err := p.take(b)
		if n > 0 || err != nil {
			return n, err
		}
		if next.IsZero() {
			<-p.changed
			continue
		}
		timer := time.NewTimer(time.Until(next))
		select {
		case <-p.changed:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// take returns what has arrived, or when to look again. Zero: when something has changed.
func (p *pipe) take(b []byte) (n int, next time.Time, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for !p.held && len(p.chunks) > 0 && n < len(b) && !p.chunks[0].at.After(now) {
		c := &p.chunks[0]
		copied := copy(b[n:], c.bytes)
		if n += copied; copied == len(c.bytes) {
			p.chunks = p.chunks[1:]
		} else {
			c.bytes = c.bytes[copied:]
		}
	}
	if n > 0 {
		return n, next, nil
	}
	if !p.deadline.IsZero() {
		if !now.Before(p.deadline) {
			return 0, next, os.ErrDeadlineExceeded
		}
		next = p.deadline
	}
	switch {
	case p.held:
	case len(p.chunks) > 0:
		next = earlier(next, p.chunks[0].at)
	case p.end != nil && !now.Before(p.ends):
		return 0, next, p.end
	case p.end != nil:
		next = earlier(next, p.ends)
	}
	return 0, next, nil
}

// later returns the later one of two times.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// earlier returns the earlier one of two times. A zero time is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// address is that of both ends of a connection.
type address string

func (address) Network() string  { return "tcp" }
func (a address) String() string { return string(a) }

// An end is one end of a connection.
type end struct {
	in       *pipe
	write    func([]byte) (int, error)
	close    func()
	from, to address
}

var _ net.Conn = (*end)(nil)

func (e *end) Read(b []byte) (int, error)  { return e.in.read(b) }
func (e *end) Write(b []byte) (int, error) { return e.write(b) }
func (e *end) Close() error                { e.close(); return nil }
func (e *end) LocalAddr() net.Addr         { return e.from }
func (e *end) RemoteAddr() net.Addr        { return e.to }

// SetDeadline bounds reads only: a write waits for nothing.
func (e *end) SetDeadline(t time.Time) error     { e.in.setDeadline(t); return nil }
func (e *end) SetReadDeadline(t time.Time) error { e.in.setDeadline(t); return nil }
func (*end) SetWriteDeadline(time.Time) error    { return nil }
