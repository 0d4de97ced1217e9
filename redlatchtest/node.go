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
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/redlatch/redlatch/internal/testing/ahead"
	"github.com/redlatch/redlatch/internal/testing/pipe"
)

// A Node is one Redis of a [Locker]. Its methods may be called from many goroutines.
type Node struct {
	server *miniredis.Miniredis
	addr   *net.TCPAddr
	client *redis.Client // of the Locker
	direct *redis.Client // of the other owner: neither cut off nor delayed

	mu    sync.Mutex // guards the fields below
	down  bool
	delay time.Duration
	links map[*link]struct{} // those that are not severed
}

// nodes counts the nodes of this process.
var nodes atomic.Uint32

// newNode returns a node at an address of its own, which errors show. NewRedlock refuses clients
// with the same one. It is an IP address, so that no name is looked up.
func newNode() *Node {
	i := nodes.Add(1)
	n := &Node{
		server: ahead.New(), links: make(map[*link]struct{}),
		addr: &net.TCPAddr{IP: net.IPv4(127, byte(i>>16), byte(i>>8), byte(i)), Port: 6379},
	}
	n.client = n.newClient(n.dial)
	n.direct = n.newClient(func() net.Conn { return n.serve(n.connection()) })
	return n
}

// newClient returns a client that sends nothing but HELLO when it connects. Its ReadTimeout is long:
// on a busy machine a batch may take seconds, and calls of a Locker end with their own timeout.
func (n *Node) newClient(dial func() net.Conn) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr:                     n.addr.String(),
		Dialer:                   func(context.Context, string, string) (net.Conn, error) { return dial(), nil },
		ReadTimeout:              patience,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// connection returns both ends of a connection.
func (n *Node) connection() (client, server *pipe.Conn) { return pipe.New(pipe.Addr("client"), n.addr) }

// serve has the server serve one end of a connection, and returns the other one.
func (n *Node) serve(client, server *pipe.Conn) *pipe.Conn {
	ahead.Serve(n.server, server)
	return client
}

// Client returns the client of this node that the Locker uses. [Node.Disconnect] and [Node.Delay]
// apply to it, and it is closed when the test ends.
func (n *Node) Client() *redis.Client { return n.client }

// Disconnect does what [Locker.Disconnect] does, for this node.
func (n *Node) Disconnect() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down = true
	for c := range n.links {
		c.sever()
	}
	clear(n.links)
}

// Reconnect ends the outage of [Node.Disconnect] or [Locker.Disconnect]. If n is connected, it does
// nothing.
func (n *Node) Reconnect() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down = false
}

// Delay does what [Locker.Delay] does, for this node.
func (n *Node) Delay(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.delay = max(d, 0)
	for c := range n.links {
		c.Out.Hurry(n.delay / 2)
		c.In.Hurry(n.delay / 2)
	}
}

// half returns the delay of one direction.
func (n *Node) half() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.delay / 2
}

// close closes n. Then its clients can no longer connect.
func (n *Node) close() {
	_ = n.client.Close()
	_ = n.direct.Close()
	n.server.Close()
}

// dial succeeds even while n is down; the connection is refused at its first use. After failed
// dials go-redis would write logs, and would not dial again until a second after the outage.
func (n *Node) dial() net.Conn {
	own, server := n.connection()
	own.Delay, server.Delay = n.half, n.half
	c := &link{Conn: own, node: n}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.down {
		c.sever()
	} else {
		n.links[c] = struct{}{}
		n.serve(own, server)
	}
	return c
}

// A link is a connection that can be cut.
type link struct {
	*pipe.Conn
	node    *Node
	severed atomic.Bool // for good
	asked   atomic.Bool // something was sent since the last reply
}

// sever cuts c. What is under way is lost.
func (c *link) sever() {
	c.severed.Store(true)
	c.Out.Reset(io.EOF)
	_ = c.Conn.Close()
}

func (c *link) Close() error {
	c.node.mu.Lock()
	delete(c.node.links, c)
	c.node.mu.Unlock()
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
	return c.node.refused()
}

// refused returns the error of a refused connection. The extra layer is one that go-redis removes
// from errors of the handshake.
func (n *Node) refused() error {
	return fmt.Errorf("%w", &net.OpError{
		Op: "dial", Net: n.addr.Network(), Addr: n.addr, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED),
	})
}
