package faultproxy

import (
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

const (
	limit = time.Minute // of every wait for an event

	ping = "*1\r\n$4\r\nPING\r\n"
	pong = "+PONG\r\n"
	set  = "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n"
)

// front returns a miniredis and a proxy in front of it.
func front(t *testing.T) (*miniredis.Miniredis, *Proxy) {
	t.Helper()
	m := miniredis.RunT(t)
	return m, New(t, "tcp", m.Addr())
}

// dial returns a bare connection to the proxy.
func dial(t *testing.T, p *Proxy) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func send(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	_, err := io.WriteString(conn, text)
	require.NoError(t, err)
}

// requireReply reads exactly the text from conn.
func requireReply(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(limit)))
	reply := make([]byte, len(text))
	_, err := io.ReadFull(conn, reply)
	require.NoError(t, err)
	require.Equal(t, text, string(reply))
}

// requireError reads the error that ends the stream of conn. No bytes may come before it.
func requireError(t *testing.T, conn net.Conn, want error) {
	t.Helper()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(limit)))
	n, err := conn.Read(make([]byte, 1))
	require.Zero(t, n)
	require.ErrorIs(t, err, want)
}

// working returns a new connection to the proxy on which the server has answered.
func working(t *testing.T, p *Proxy) net.Conn {
	t.Helper()
	conn := dial(t, p)
	send(t, conn, ping)
	requireReply(t, conn, pong)
	return conn
}

// requireHeld waits until the proxy holds back n chunks.
func requireHeld(t *testing.T, p *Proxy, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		held := 0
		for l := range p.links {
			held += l.held
		}
		return held == n
	}, limit, time.Millisecond)
}

// TestLosses: of a lost request nothing is carried out, and of a lost reply all. A pipeline is lost
// at once.
func TestLosses(t *testing.T) {
	m, p := front(t)
	options := p.Options()
	options.MaxRetries = -1
	options.PipelinePoolSize = -1 // pipelines use the connection that is open
	client := redis.NewClient(options)
	defer client.Close()
	ctx := t.Context()
	require.NoError(t, client.Ping(ctx).Err())

	p.LoseRequests(1, "set")
	p.LoseReplies(2, "SET")
	require.Empty(t, client.Get(ctx, "k").Val(), "of another command")
	require.Zero(t, p.Lost())
	require.Error(t, client.Set(ctx, "k", "v", 0).Err())
	require.False(t, m.Exists("k"))
	require.Equal(t, 1, p.Lost())
	require.ErrorIs(t, client.Set(ctx, "k", "v", 0).Err(), io.EOF)
	m.CheckGet(t, "k", "v")
	_, err := client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Set(ctx, "a", "1", 0)
		pipe.Set(ctx, "b", "2", 0)
		return nil
	})
	require.ErrorIs(t, err, io.EOF)
	m.CheckGet(t, "a", "1")
	m.CheckGet(t, "b", "2")
	require.NoError(t, client.Set(ctx, "k", "w", 0).Err())
	require.Equal(t, 3, p.Lost())

	p.LoseReplies(1, "")
	p.LoseReplies(0, "")
	require.NoError(t, client.Ping(ctx).Err(), "taken back")
}

// TestSilence: requests, replies and new connections are held until Heal. A request reaches Redis
// even if its client has gone.
func TestSilence(t *testing.T) {
	m, p := front(t)
	p.Delay(time.Hour)
	asked := dial(t, p)
	send(t, asked, set)
	require.Eventually(t, func() bool { return m.Exists("k") }, limit, time.Millisecond)
	requireHeld(t, p, 1)
	m.FlushAll()
	p.Silence()
	p.Delay(0)
	gone := dial(t, p)
	send(t, gone, set)
	require.NoError(t, gone.Close())
	requireHeld(t, p, 2)
	require.False(t, m.Exists("k"))
	require.Equal(t, 2, p.Connections())
	p.Heal()
	requireReply(t, asked, "+OK\r\n")
	require.Eventually(t, func() bool { return m.Exists("k") && p.Connections() == 1 }, limit, time.Millisecond)
}

// TestSilenceOpen holds no new connections. HealDropping cuts only connections that hold something,
// and it is never delivered.
func TestSilenceOpen(t *testing.T) {
	m, p := front(t)
	old, idle := working(t, p), working(t, p)
	p.SilenceOpen()
	send(t, old, set)
	working(t, p)
	requireHeld(t, p, 1)
	p.HealDropping()
	requireError(t, old, syscall.ECONNRESET)
	send(t, idle, ping)
	requireReply(t, idle, pong)
	require.False(t, m.Exists("k"))
}

// TestDelay holds replies only, in their order.
func TestDelay(t *testing.T) {
	_, p := front(t)
	conn := dial(t, p)
	delays := make(chan time.Duration, 2)
	delays <- 50 * time.Millisecond
	delays <- 0
	p.DelayFunc(func() time.Duration { return <-delays })
	start := time.Now()
	send(t, conn, ping)
	requireHeld(t, p, 1)
	send(t, conn, set)
	requireReply(t, conn, pong+"+OK\r\n")
	require.GreaterOrEqual(t, time.Since(start), 50*time.Millisecond)
}

// TestCutAndRefuse: both reset connections. New ones work after Cut, and after Heal. The end of the
// test ends everything.
func TestCutAndRefuse(t *testing.T) {
	var p *Proxy
	t.Run("the test", func(t *testing.T) {
		var m *miniredis.Miniredis
		m, p = front(t)
		conn := working(t, p)
		p.Cut()
		requireError(t, conn, syscall.ECONNRESET)
		conn = working(t, p)
		p.Refuse()
		requireError(t, conn, syscall.ECONNRESET)
		_, err := net.Dial("tcp", p.Addr())
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		p.Heal()
		conn = working(t, p)
		m.Close()
		requireError(t, conn, io.EOF)
		p.Silence()
		send(t, dial(t, p), ping)
		requireHeld(t, p, 1)
	})
	require.Zero(t, p.Connections())
	p.Heal()
	_, err := net.Dial("tcp", p.Addr())
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
}
