// Package pipe has connections in memory, for tests. It starts no goroutine. In a bubble of
// testing/synctest, a read that waits blocks durably.
//
// A write queues what it is given, and waits for nothing. A connection of net.Pipe has no buffer:
// go-redis writes a whole pipeline before it reads, and miniredis writes each reply before it reads
// on, so both would wait for ever.
//
// A queue has no bound. With one, both ends could wait for each other again, and Redis has no bound
// for what it writes to a client either. A client has few batches under way, and an end that is
// closed drops what it has not read.
package pipe

import (
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// An Addr is the address of an end.
type Addr string

// Network returns "tcp".
func (Addr) Network() string { return "tcp" }

// String returns a.
func (a Addr) String() string { return string(a) }

// A Conn is one end of a connection. The fields must not be changed once it is in use.
type Conn struct {
	In, Out       *Pipe // what it reads, and what the other end reads
	Local, Remote net.Addr
	Delay         func() time.Duration // of what it writes; nil: none

	closed atomic.Bool

	mu       sync.Mutex // guards the field below
	deadline time.Time  // of writes
}

var _ net.Conn = (*Conn)(nil)

// New returns both ends of a connection.
func New(a, b net.Addr) (ofA, ofB *Conn) {
	toA, toB := new(Pipe), new(Pipe)
	return &Conn{In: toA, Out: toB, Local: a, Remote: b}, &Conn{In: toB, Out: toA, Local: b, Remote: a}
}

func (c *Conn) Read(b []byte) (int, error) {
	if c.closed.Load() {
		return 0, net.ErrClosed
	}
	return c.In.Read(b)
}

// Write waits for nothing. It fails if this end or the other one is closed, and if its deadline has
// passed.
func (c *Conn) Write(b []byte) (int, error) {
	c.mu.Lock()
	deadline := c.deadline
	c.mu.Unlock()
	switch {
	case c.closed.Load():
		return 0, net.ErrClosed
	case !deadline.IsZero() && !time.Now().Before(deadline):
		return 0, os.ErrDeadlineExceeded
	case c.Out.Ended():
		return 0, &net.OpError{Op: "write", Net: "tcp", Err: os.NewSyscallError("write", syscall.EPIPE)}
	}
	var delay time.Duration
	if c.Delay != nil {
		delay = c.Delay()
	}
	c.Out.Send(slices.Clone(b), delay)
	return len(b), nil
}

// Close ends reads here at once, and those at the other end behind what was sent.
func (c *Conn) Close() error {
	c.closed.Store(true)
	c.In.Reset(net.ErrClosed)
	c.Out.Finish(io.EOF, 0)
	return nil
}

// LocalAddr returns c.Local.
func (c *Conn) LocalAddr() net.Addr { return c.Local }

// RemoteAddr returns c.Remote.
func (c *Conn) RemoteAddr() net.Addr { return c.Remote }

// SetDeadline bounds reads and writes.
func (c *Conn) SetDeadline(t time.Time) error {
	_ = c.SetWriteDeadline(t)
	return c.SetReadDeadline(t)
}

// SetReadDeadline bounds reads, those under way too.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.In.SetDeadline(t)
	return c.open()
}

// SetWriteDeadline bounds writes.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	c.deadline = t
	c.mu.Unlock()
	return c.open()
}

func (c *Conn) open() error {
	if c.closed.Load() {
		return net.ErrClosed
	}
	return nil
}
