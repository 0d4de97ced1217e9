// Package faultproxy is a TCP proxy in front of one Redis. A test switches its faults on and off.
//
// It does not parse the protocol. The data of one Read from a client is one request chunk, and that
// of one Read from Redis is one reply chunk. A go-redis client that waits for each reply sends each
// command, or each pipeline of up to 32 KB, as one chunk. Pipelines have their own connections, and
// a connection begins with a handshake. So a test that counts chunks, or loses chunks with any
// text, should use the client once before.
package faultproxy

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/redlatch/redlatch/internal/testing/redistest"
)

// Proxy forwards connections to its target. Its methods may be called from several
// goroutines.
type Proxy struct {
	tb   testing.TB
	addr string
	wg   sync.WaitGroup // every goroutine of the Proxy

	mu           sync.Mutex // guards the fields below and those of every link
	network      string     // of the target
	target       string
	closed       bool
	listener     net.Listener // nil while connections are refused
	links        map[*link]bool
	lost         int
	loseReplies  loss
	loseRequests loss
	silent       bool
	delay        func() time.Duration // nil is none
	changed      chan struct{}        // closed and replaced when silent or delay changes
}

// New returns a proxy on a loopback address in front of the Redis at target. At the end of tb it
// cuts its connections and waits for its goroutines.
//
// A connection is accepted even if the target cannot be reached, and is closed once the dial has
// failed.
func New(tb testing.TB, network, target string) *Proxy {
	tb.Helper()
	listener, err := listen()
	if err != nil {
		tb.Fatal(err)
	}
	p := &Proxy{
		tb:      tb,
		network: network,
		target:  target,
		addr:    listener.Addr().String(),
		links:   make(map[*link]bool),
		changed: make(chan struct{}),
	}
	p.serveLocked(listener)
	tb.Cleanup(func() {
		p.change(func() { p.closed = true; p.refuseLocked() })
		p.wg.Wait()
	})
	return p
}

// listen chooses an address that nobody else takes between Refuse and Heal: the port is below those
// of outgoing connections, and if all of 127.0.0.0/8 is this machine, as on Linux, the IP address
// is its own.
func listen() (listener net.Listener, err error) {
	for range 10 {
		port := 10_000 + rand.IntN(10_000)
		own := fmt.Sprintf("127.%d.%d.%d:%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254), port)
		for _, addr := range []string{own, fmt.Sprintf("127.0.0.1:%d", port)} {
			if listener, err = net.Listen("tcp", addr); err == nil {
				return listener, nil
			}
		}
	}
	return nil, err
}

// listenAgain listens at an address that this process listened at before. A child process has a
// copy of the closed listener between fork and exec.
func listenAgain(addr string) (listener net.Listener, err error) {
	for end := time.Now().Add(time.Second); ; time.Sleep(time.Millisecond) {
		listener, err = net.Listen("tcp", addr)
		if !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(end) {
			return listener, err
		}
	}
}

// Addr is the Addr of redis.Options. It stays the same for the life of the Proxy.
func (p *Proxy) Addr() string { return p.addr }

// Options returns new options that reach the proxy. They are the defaults of go-redis except for
// the handshake, which is HELLO only: CLIENT SETINFO contains "set", which a test may want to lose.
func (p *Proxy) Options() *redis.Options {
	return &redis.Options{
		Network:                  "tcp",
		Addr:                     p.addr,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// Client returns a client with [Proxy.Options]. It is closed at the end of tb.
func (p *Proxy) Client(tb testing.TB) *redis.Client {
	tb.Helper()
	return redistest.NewClient(tb, p.Options())
}

// Connections is the number of open connections. One that its client has closed counts until its
// data were forwarded and Redis has closed its side too.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// Lost is the number of request chunks whose reply was dropped, or which were not
// forwarded, since New.
func (p *Proxy) Lost() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost
}

// serveLocked admits what the listener accepts.
func (p *Proxy) serveLocked(listener net.Listener) {
	p.listener = listener
	// The Proxy owns this goroutine, which ends when the listener is closed, by Refuse or
	// at the end of the test, which waits for it.
	p.wg.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			p.admit(listener, client.(*net.TCPConn))
		}
	})
}

// admit starts a link, or cuts one that was accepted while the listener was being closed.
func (p *Proxy) admit(listener net.Listener, client *net.TCPConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := &link{proxy: p, client: client}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	if p.listener != listener {
		l.cutLocked()
		return
	}
	p.links[l] = true
	// The Proxy owns this goroutine, which ends with the link. The end of the test ends the link
	// and waits.
	p.wg.Go(l.run)
}
