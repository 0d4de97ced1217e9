// Package ahead has servers whose clock is ahead in bubbles of testing/synctest. A bubble begins in
// 2000, but fences count the time since 2026: before, they take another path.
package ahead

import (
	"net"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/redlatch/redlatch/internal/testing/pipe"
)

// years is from the beginning of a bubble to the end of 2026.
const years = 27 * 365 * 24 * time.Hour

// first is when the time of fences begins.
var first = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func inBubble() bool { return time.Now().Before(first) }

// Now is the time of a server: that of this machine, or in a bubble 27 years later.
func Now() time.Time {
	if inBubble() {
		return time.Now().Add(years)
	}
	return time.Now()
}

// New returns a server whose keys expire by Now, if all connections to it are those of Serve.
func New() *miniredis.Miniredis {
	m := miniredis.NewMiniRedis()
	if inBubble() {
		m.SetTime(Now())
	}
	m.ClockTTL(true)
	c, err := m.Dial() // which starts it
	if err != nil {
		panic(err) // it listens nowhere
	}
	_ = c.Close()
	return m
}

// Dial returns a connection to a server of New.
func Dial(m *miniredis.Miniredis) (net.Conn, error) { return DialSet(m, Now) }

// DialSet is like Dial, to a server whose clock says now.
func DialSet(m *miniredis.Miniredis, now func() time.Time) (net.Conn, error) {
	client, c := pipe.New(pipe.Addr("client"), pipe.Addr("server"))
	serve(m, c, now)
	return client, nil
}

// Serve has a server of New serve a connection. A server that is closed hangs up. In a bubble each
// command sets the time, which stands still in miniredis once it was set.
func Serve(m *miniredis.Miniredis, c net.Conn) { serve(m, c, Now) }

func serve(m *miniredis.Miniredis, c net.Conn, now func() time.Time) {
	if inBubble() {
		c = &conn{c, m, now}
	}
	if s := m.Server(); s != nil {
		s.ServeConn(c)
		return
	}
	_ = c.Close()
}

type conn struct {
	net.Conn
	server *miniredis.Miniredis
	now    func() time.Time
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.server.SetTime(c.now())
	}
	return n, err
}
