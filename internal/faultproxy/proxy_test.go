package faultproxy

import (
	"io"
	"net"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

const (
	limit = 10 * time.Second // of every wait for an event
	poll  = time.Millisecond

	ping = "*1\r\n$4\r\nPING\r\n"
	pong = "+PONG\r\n"
)

// front returns a miniredis and a proxy in front of it.
func front(t *testing.T) (*miniredis.Miniredis, *Proxy) {
	t.Helper()
	m := miniredis.RunT(t)
	return m, New(t, "tcp", m.Addr())
}

// single returns a client that never sends a command twice and has one pool, pipelines
// included, whose first connection is open.
func single(t *testing.T, p *Proxy) *redis.Client {
	t.Helper()
	options := p.Options()
	options.MaxRetries = -1
	options.PipelinePoolSize = -1
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	require.NoError(t, client.Ping(t.Context()).Err())
	return client
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

// readError returns the error that ends the stream of conn. No bytes may come before it.
func readError(t *testing.T, conn net.Conn, within time.Duration) error {
	t.Helper()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(within)))
	n, err := conn.Read(make([]byte, 1))
	require.Zero(t, n)
	return err
}

// eventually waits for an event.
func eventually(t *testing.T, event func() bool) {
	t.Helper()
	require.Eventually(t, event, limit, poll)
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

func TestCommandsPass(t *testing.T) {
	m, p := front(t)
	client := p.Client(t)
	require.NoError(t, client.Set(t.Context(), "k", "v", 0).Err())
	require.Equal(t, "v", client.Get(t.Context(), "k").Val())
	m.CheckGet(t, "k", "v")
	require.Zero(t, p.Lost())
}

func TestLargeValuesPassUnchanged(t *testing.T) {
	m, p := front(t)
	value := strings.Repeat("0123456789", chunkSize)
	client := p.Client(t)
	require.NoError(t, client.Set(t.Context(), "k", value, 0).Err())
	m.CheckGet(t, "k", value)
	require.Equal(t, value, client.Get(t.Context(), "k").Val())
}

func TestHandshakeIsOneChunk(t *testing.T) {
	_, p := front(t)
	single(t, p)
	require.Equal(t, 2, p.Requests(), "HELLO and PING")
}

func TestEveryRequestChunkIsCounted(t *testing.T) {
	_, p := front(t)
	client := single(t, p)
	before := p.Requests()
	for range 10 {
		require.NoError(t, client.Ping(t.Context()).Err())
	}
	_, err := client.Pipelined(t.Context(), func(pipe redis.Pipeliner) error {
		pipe.Ping(t.Context())
		pipe.Ping(t.Context())
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, before+11, p.Requests())
}

func TestConnectionsAreCountedWhileTheyAreOpen(t *testing.T) {
	_, p := front(t)
	require.Zero(t, p.Connections())
	first, second := dial(t, p), dial(t, p)
	eventually(t, func() bool { return p.Connections() == 2 })
	require.NoError(t, first.Close())
	eventually(t, func() bool { return p.Connections() == 1 })
	require.NoError(t, second.Close())
	eventually(t, func() bool { return p.Connections() == 0 })
}

func TestClosedServerEndsItsConnections(t *testing.T) {
	m, p := front(t)
	conn := dial(t, p)
	send(t, conn, ping)
	requireReply(t, conn, pong)
	m.Close()
	require.ErrorIs(t, readError(t, conn, limit), io.EOF)
	require.ErrorIs(t, readError(t, dial(t, p), limit), io.EOF)
}

func TestCutResetsAllConnectionsAndAcceptsNewOnes(t *testing.T) {
	_, p := front(t)
	conn := dial(t, p)
	send(t, conn, ping)
	requireReply(t, conn, pong)
	p.Cut()
	require.Zero(t, p.Connections())
	require.ErrorIs(t, readError(t, conn, limit), syscall.ECONNRESET)

	conn = dial(t, p)
	send(t, conn, ping)
	requireReply(t, conn, pong)
}

func TestConnectionsAreCutByWhetherTheyCarriedSubscribe(t *testing.T) {
	for name, cut := range map[string]func(*Proxy){"subscribed": (*Proxy).CutSubscribed, "others": (*Proxy).CutUnsubscribed} {
		t.Run(name, func(t *testing.T) {
			_, p := front(t)
			client := p.Client(t)
			require.NoError(t, client.Ping(t.Context()).Err())
			ps := client.Subscribe(t.Context(), "channel")
			defer ps.Close()
			_, err := ps.Receive(t.Context())
			require.NoError(t, err)
			require.Equal(t, 2, p.Connections())
			cut(p)
			require.Equal(t, 1, p.Connections())
			require.NoError(t, client.Publish(t.Context(), "channel", "x").Err())
			message, err := ps.ReceiveTimeout(t.Context(), 100*time.Millisecond)
			if name == "subscribed" {
				require.Error(t, err)
			} else {
				require.IsType(t, &redis.Message{}, message)
			}
		})
	}
}

func TestNewConnectionsReachTheNewTarget(t *testing.T) {
	old, p := front(t)
	client := p.Client(t)
	conn := client.Conn()
	defer conn.Close()
	require.NoError(t, conn.Ping(t.Context()).Err())
	other := miniredis.RunT(t)
	p.PointAt("tcp", other.Addr())
	require.NoError(t, conn.Set(t.Context(), "k", "old", 0).Err())
	require.NoError(t, client.Set(t.Context(), "k", "new", 0).Err())
	old.CheckGet(t, "k", "old")
	other.CheckGet(t, "k", "new")
}

func TestRefuseCutsAndRefusesUntilHeal(t *testing.T) {
	_, p := front(t)
	conn := dial(t, p)
	send(t, conn, ping)
	requireReply(t, conn, pong)
	p.Refuse()
	p.Refuse()
	require.Zero(t, p.Connections())
	require.ErrorIs(t, readError(t, conn, limit), syscall.ECONNRESET)
	_, err := net.Dial("tcp", p.Addr())
	require.ErrorIs(t, err, syscall.ECONNREFUSED)

	p.Heal()
	p.Heal()
	conn = dial(t, p)
	send(t, conn, ping)
	requireReply(t, conn, pong)
}

// A forked process keeps a copy of the listener for a moment.
func TestHealWaitsForItsPort(t *testing.T) {
	_, p := front(t)
	p.Refuse()
	copied, err := net.Listen("tcp", p.Addr())
	require.NoError(t, err)
	time.AfterFunc(50*time.Millisecond, func() { _ = copied.Close() })
	p.Heal()
	conn := dial(t, p)
	send(t, conn, ping)
	requireReply(t, conn, pong)
}

func TestEndOfTestEndsEverything(t *testing.T) {
	m := miniredis.RunT(t)
	var silent, delayed *Proxy
	t.Run("the test", func(t *testing.T) {
		silent = New(t, "tcp", m.Addr())
		silent.Silence()
		for range 100 {
			send(t, dial(t, silent), ping)
		}
		delayed = New(t, "tcp", m.Addr())
		delayed.Delay(time.Hour)
		send(t, dial(t, delayed), ping)
		New(t, "tcp", m.Addr()).Refuse()
		eventually(t, func() bool { return held(silent) == 100 && held(delayed) == 1 })
	})
	require.Zero(t, silent.Connections())
	require.Zero(t, delayed.Connections())
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	require.NotContains(t, string(stacks), "faultproxy.(*")

	// Heal does not listen again after the end of the test.
	silent.Heal()
	_, err := net.Dial("tcp", silent.Addr())
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
}
