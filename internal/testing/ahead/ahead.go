// Package ahead has servers whose clock is ahead in bubbles of testing/synctest. A bubble begins in
// 2000, but fences count the time since 2026: before, they take another path.
package ahead

import (
	"net"
	"time"

	"github.com/alicebob/miniredis/v2"
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

// New returns a server whose keys expire by Now, if all connections to it are those of Dial.
func New() *miniredis.Miniredis {
	m := miniredis.NewMiniRedis()
	if inBubble() {
		m.SetTime(Now())
	}
	m.ClockTTL(true)
	return m
}

// Dial returns a connection to a server of New. In a bubble each write sets the time, which stands
// still in miniredis once it was set.
func Dial(m *miniredis.Miniredis) (net.Conn, error) {
	c, err := m.Dial()
	if err != nil || !inBubble() {
		return c, err
	}
	return &conn{c, m}, nil
}

type conn struct {
	net.Conn
	server *miniredis.Miniredis
}

func (c *conn) Write(b []byte) (int, error) {
	c.server.SetTime(Now())
	return c.Conn.Write(b)
}
