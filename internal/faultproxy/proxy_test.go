package faultproxy

import (
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

const (
	limit = 10 * time.Second // of every wait for an event

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
func requireError(t *testing.T, conn net.Conn, want error, within time.Duration) {
	t.Helper()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(within)))
	n, err := conn.Read(make([]byte, 1))
	require.Zero(t, n)
	require.ErrorIs(t, err, want)
}

// requireSilence fails if conn has anything to read soon.
func requireSilence(t *testing.T, conn net.Conn) {
	t.Helper()
	requireError(t, conn, os.ErrDeadlineExceeded, 20*time.Millisecond)
}

// requireWorking fails unless the server answers on conn.
func requireWorking(t *testing.T, conn net.Conn) {
	t.Helper()
	send(t, conn, ping)
	requireReply(t, conn, pong)
}

// eventually waits for an event.
func eventually(t *testing.T, event func() bool) {
	t.Helper()
	require.Eventually(t, event, limit, time.Millisecond)
}

// held is the number of chunks that the proxy holds back.
func held(p *Proxy) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for l := range p.links {
		n += l.held
	}
	return n
}

// TestLosses: of a lost request nothing is carried out, and of a lost reply all. A pipeline is lost at once.
func TestLosses(t *testing.T) {
	m, p := front(t)
	options := p.Options()
	options.MaxRetries = -1
	options.PipelinePoolSize = -1 // pipelines use the connection that is open
	client := redis.NewClient(options)
	defer client.Close()
	ctx := t.Context()
	require.NoError(t, client.Ping(ctx).Err())
	require.Equal(t, 2, p.Requests(), "HELLO and PING")

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

// TestSilence: requests, replies and new connections are held until Heal. A request reaches Redis even if its client has gone.
func TestSilence(t *testing.T) {
	m, p := front(t)
	p.Delay(time.Hour)
	asked := dial(t, p)
	send(t, asked, ping)
	eventually(t, func() bool { return held(p) == 1 && p.Requests() == 1 })
	p.Silence()
	p.Delay(0)
	gone := dial(t, p)
	send(t, gone, set)
	require.NoError(t, gone.Close())
	eventually(t, func() bool { return held(p) == 3 }) // with the end of its connection
	requireSilence(t, asked)
	require.False(t, m.Exists("k"))
	require.Equal(t, 2, p.Connections())
	p.Heal()
	requireReply(t, asked, pong)
	eventually(t, func() bool { return m.Exists("k") && p.Connections() == 1 })
}

// TestSilenceOpen holds no new connections. HealDropping cuts only connections that hold something, and it is never delivered.
func TestSilenceOpen(t *testing.T) {
	m, p := front(t)
	old, idle := dial(t, p), dial(t, p)
	requireWorking(t, old)
	requireWorking(t, idle)
	p.SilenceOpen()
	send(t, old, set)
	requireWorking(t, dial(t, p))
	requireSilence(t, old)
	eventually(t, func() bool { return held(p) == 1 })
	p.HealDropping()
	requireError(t, old, syscall.ECONNRESET, limit)
	requireWorking(t, idle)
	require.False(t, m.Exists("k"))
}

// TestDelay holds replies only, in their order. A new delay also applies to replies in flight.
func TestDelay(t *testing.T) {
	m, p := front(t)
	conn := dial(t, p)
	delays := make(chan time.Duration, 2)
	delays <- 50 * time.Millisecond
	delays <- 0
	p.DelayFunc(func() time.Duration { return <-delays })
	start := time.Now()
	send(t, conn, ping)
	eventually(t, func() bool { return p.Requests() == 1 && held(p) == 1 })
	send(t, conn, set)
	requireReply(t, conn, pong+"+OK\r\n")
	require.GreaterOrEqual(t, time.Since(start), 50*time.Millisecond)

	p.Delay(time.Hour)
	m.FlushAll()
	send(t, conn, set)
	eventually(t, func() bool { return m.Exists("k") && held(p) == 1 })
	p.Delay(0)
	requireReply(t, conn, "+OK\r\n")
}

// TestCutAndRefuse: both reset connections. New ones work after Cut, and after Heal.
func TestCutAndRefuse(t *testing.T) {
	m, p := front(t)
	conn := dial(t, p)
	requireWorking(t, conn)
	p.Cut()
	require.Zero(t, p.Connections())
	requireError(t, conn, syscall.ECONNRESET, limit)
	conn = dial(t, p)
	requireWorking(t, conn)
	p.Refuse()
	requireError(t, conn, syscall.ECONNRESET, limit)
	_, err := net.Dial("tcp", p.Addr())
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	p.Heal()
	conn = dial(t, p)
	requireWorking(t, conn)
	m.Close()
	requireError(t, conn, io.EOF, limit)
}

func TestEndOfTestEndsEverything(t *testing.T) {
	m := miniredis.RunT(t)
	var p *Proxy
	t.Run("the test", func(t *testing.T) {
		p = New(t, "tcp", m.Addr())
		p.Silence()
		send(t, dial(t, p), ping)
		eventually(t, func() bool { return held(p) == 1 })
	})
	require.Zero(t, p.Connections())
	p.Heal()
	_, err := net.Dial("tcp", p.Addr())
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
}
