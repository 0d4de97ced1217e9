package redlatchvalkey

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/valkey-io/valkey-go"
)

// A conn is a connection of go-redis. Write only keeps the commands. Read gives those that have come to
// valkey-go at once, waits for the results, and writes them down as replies. So it needs no goroutine, and
// go-redis bounds how many calls of valkey-go are under way: one for each of its connections.
//
// After SUBSCRIBE it is a connection for messages, see subscription.
type conn struct {
	*source
	server valkey.Client // of one server, or the whole
	whole  bool          // valkey-go does not know that server of a Cluster yet, and finds those of keys itself
	addr   connAddr
	ctx    context.Context //nolint:containedctx // it ends with Close
	cancel context.CancelFunc

	// Of the goroutine that reads.
	out []byte // replies
	err error  // comes behind them

	mu           sync.Mutex // guards the fields below
	in           []byte     // the beginning of a command
	commands     [][]string // not carried out yet
	deadline     time.Time  // of Read
	subscription *subscription
}

// Write takes commands.
func (c *conn) Write(p []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, net.ErrClosed
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	commands, rest, err := parse(append(c.in, p...))
	if err != nil {
		return 0, err
	}
	c.in = rest
	for _, words := range commands {
		if c.subscription == nil && name(words) == "subscribe" {
			c.subscription = subscribe(c.ctx, c.server, c.whole)
		}
		if c.subscription == nil {
			c.commands = append(c.commands, words)
		} else if err := c.subscription.send(words); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// Read returns replies, or messages.
func (c *conn) Read(p []byte) (n int, err error) {
	c.mu.Lock()
	commands, deadline, subscription := c.commands, c.deadline, c.subscription
	c.commands = nil
	c.mu.Unlock()
	ctx := c.ctx
	if !deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline)
		defer cancel()
	}
	if subscription != nil {
		n, err = subscription.read(ctx, p)
		return n, c.explain(err)
	}
	if len(commands) > 0 {
		c.out, c.err = c.exchange(ctx, commands)
	}
	if len(c.out) > 0 {
		n = copy(p, c.out)
		c.out = c.out[n:]
		return n, nil
	}
	if c.err == nil { // there is nothing to wait for
		<-ctx.Done()
		return 0, c.explain(ctx.Err())
	}
	return 0, c.explain(c.err)
}

// explain returns what go-redis gets of an error that is no answer of Redis. That of a context does
// not say whether the command was sent, so it is a timeout, and [valkey.ErrClosing] does not either.
// A dial that failed says that it was not.
func (c *conn) explain(err error) error {
	switch {
	case err == nil, errors.Is(err, redis.ErrClosed):
		return err
	case c.ctx.Err() != nil:
		return net.ErrClosed
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return &net.OpError{Op: "read", Net: c.addr.Network(), Addr: c.addr, Err: os.ErrDeadlineExceeded}
	case errors.Is(err, valkey.ErrClosing):
		c.closing.Store(true)
		return &net.OpError{Op: "read", Net: c.addr.Network(), Addr: c.addr, Err: err}
	}
	return err
}

// Close ends a Read.
func (c *conn) Close() error {
	c.cancel()
	return nil
}

// SetReadDeadline bounds the next Read.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = t
	return nil
}

// SetDeadline bounds the next Read. A Write does not wait.
func (c *conn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// SetWriteDeadline does nothing.
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

func (c *conn) LocalAddr() net.Addr  { return c.addr }
func (c *conn) RemoteAddr() net.Addr { return c.addr }

// A connAddr is the address of the server for go-redis.
type connAddr string

func (connAddr) Network() string  { return "valkey-go" }
func (a connAddr) String() string { return string(a) }
