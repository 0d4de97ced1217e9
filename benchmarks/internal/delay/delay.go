// Package delay puts a round trip between a client and a server of the same machine.
package delay

import (
	"context"
	"net"
	"slices"
	"sync"
	"time"
)

// Dial returns a dialer whose connections have that round trip. They delay what the client sends
// for all of it, and nothing that it receives. A chain of commands, replies and messages takes as
// long as over a network that delays each way by half of it.
func Dial(roundTrip time.Duration) func(ctx context.Context, network, addr string) (net.Conn, error) {
	var dialer net.Dialer
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dialer.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return newConn(c, roundTrip), nil
	}
}

// inFlight is how many writes may be under way. More wait, as on a connection with a full buffer.
const inFlight = 1024

// conn delays each write by the round trip. Writes do not wait for each other, so a pipeline takes
// one round trip.
type conn struct {
	net.Conn
	roundTrip time.Duration
	queue     chan packet
	closing   sync.Once
	closed    chan struct{}
	sender    sync.WaitGroup
}

// packet is what one Write sends.
type packet struct {
	data []byte
	due  time.Time
}

func newConn(c net.Conn, roundTrip time.Duration) *conn {
	d := &conn{Conn: c, roundTrip: roundTrip, queue: make(chan packet, inFlight), closed: make(chan struct{})}
	d.sender.Go(d.send) // ends with Close, which waits for it
	return d
}

// Write reports an error only of a closed connection. Reads report the others.
func (c *conn) Write(data []byte) (int, error) {
	select {
	case <-c.closed:
		return 0, net.ErrClosed
	default:
	}
	select {
	case c.queue <- packet{slices.Clone(data), time.Now().Add(c.roundTrip)}:
		return len(data), nil
	case <-c.closed:
		return 0, net.ErrClosed
	}
}

func (c *conn) send() {
	wait := time.NewTimer(0)
	defer wait.Stop()
	for {
		select {
		case p := <-c.queue:
			wait.Reset(time.Until(p.due))
			select {
			case <-wait.C:
			case <-c.closed:
				return
			}
			if _, err := c.Conn.Write(p.data); err != nil {
				_ = c.Conn.Close()
				return
			}
		case <-c.closed:
			return
		}
	}
}

// SetDeadline bounds reads only, since Write does not wait for the network.
func (c *conn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// SetWriteDeadline does nothing: it would apply to a write that is sent later.
func (*conn) SetWriteDeadline(time.Time) error { return nil }

// Close drops what is still under way.
func (c *conn) Close() error {
	c.closing.Do(func() { close(c.closed) })
	err := c.Conn.Close()
	c.sender.Wait()
	return err
}
