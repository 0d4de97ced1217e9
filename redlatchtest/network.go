package redlatchtest

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/testing/ahead"
)

// address is shown in errors. It is an IP address, so that no name is looked up.
var address = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 6379}

// errRefused is the error of a refused connection. The extra layer is one that go-redis removes
// from errors of the handshake.
var errRefused = fmt.Errorf("%w", &net.OpError{
	Op: "dial", Net: address.Network(), Addr: address, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED),
})

// A network connects a client to the server by pipes. A goroutine that waits on a socket would stop
// the clock of a bubble.
type network struct {
	server *miniredis.Miniredis

	mu    sync.Mutex // guards the fields below
	down  bool
	links map[*link]struct{} // those that are not severed
}

func newNetwork(server *miniredis.Miniredis) *network {
	return &network{server: server, links: make(map[*link]struct{})}
}

func newClient(n *network) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr:   address.String(),
		Dialer: func(context.Context, string, string) (net.Conn, error) { return n.dial() },
	})
}

// dial succeeds even while n is down; the connection is refused at its first use. After failed
// dials go-redis would write logs, and would not dial again until a second after the outage.
func (n *network) dial() (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	conn, err := ahead.Dial(n.server)
	if err != nil {
		return nil, err
	}
	c := &link{Conn: conn, network: n}
	if n.down {
		c.sever()
	} else {
		n.links[c] = struct{}{}
	}
	return c, nil
}

// cut severs all connections, including new ones until restore.
func (n *network) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down = true
	for c := range n.links {
		c.sever()
	}
	clear(n.links)
}

func (n *network) restore() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down = false
}

// A link is a connection that can be cut.
type link struct {
	net.Conn
	network *network
	severed atomic.Bool // for good
	asked   atomic.Bool // something was sent since the last reply
}

func (c *link) sever() {
	c.severed.Store(true)
	_ = c.Conn.Close()
}

func (c *link) Close() error {
	c.network.mu.Lock()
	delete(c.network.links, c)
	c.network.mu.Unlock()
	return c.Conn.Close()
}

func (c *link) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.asked.Store(false)
	}
	if err != nil && c.severed.Load() {
		err = io.EOF
	}
	return n, err
}

func (c *link) Write(b []byte) (int, error) {
	if c.severed.Load() {
		return 0, c.broken(net.ErrClosed)
	}
	c.asked.Store(true)
	n, err := c.Conn.Write(b)
	return n, c.broken(err)
}

func (c *link) SetReadDeadline(t time.Time) error { return c.broken(c.Conn.SetReadDeadline(t)) }

func (c *link) SetWriteDeadline(t time.Time) error { return c.broken(c.Conn.SetWriteDeadline(t)) }

// broken returns the error of an operation that failed with err. If c was severed before a command
// was sent, no command was carried out: on a real network the client finds the connection dead,
// dials again and is refused.
func (c *link) broken(err error) error {
	switch {
	case err == nil, !c.severed.Load():
		return err
	case c.asked.Load():
		return io.EOF
	}
	return errRefused
}
