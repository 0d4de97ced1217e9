package node

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/require"
)

const aLongWay = 20 * time.Millisecond

// A distant server answers "OK" to each command, after a trip. It admits a number of connections.
type distant struct {
	admits int
	open   atomic.Int64
}

// dial opens a connection at once.
func (d *distant) dial(context.Context, string, string) (net.Conn, error) {
	if d.open.Add(1) > int64(d.admits) {
		d.open.Add(-1)
		return nil, errors.New("connection refused")
	}
	return &distantConn{server: d, replies: make(chan []byte, 1000), closed: make(chan struct{})}, nil
}

// A distantConn is a connection to a distant server.
type distantConn struct {
	net.Conn
	server  *distant
	replies chan []byte // each is on its way
	rest    []byte
	close   sync.Once
	closed  chan struct{}
}

func (c *distantConn) Write(b []byte) (int, error) {
	reply := bytes.Repeat([]byte("+OK\r\n"), bytes.Count(b, []byte("*"))) // no word has one
	if bytes.Contains(b, []byte("hello")) {
		reply = []byte("-ERR unknown command\r\n")
	}
	time.AfterFunc(aLongWay, func() { c.replies <- reply })
	return len(b), nil
}

func (c *distantConn) Read(b []byte) (int, error) {
	if len(c.rest) == 0 {
		select {
		case c.rest = <-c.replies:
		case <-c.closed:
			return 0, io.EOF
		case <-time.After(limit):
			return 0, os.ErrDeadlineExceeded
		}
	}
	n := copy(b, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

func (c *distantConn) Close() error {
	c.close.Do(func() {
		close(c.closed)
		c.server.open.Add(-1)
	})
	return nil
}

func (*distantConn) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (*distantConn) SetDeadline(time.Time) error      { return nil }
func (*distantConn) SetReadDeadline(time.Time) error  { return nil }
func (*distantConn) SetWriteDeadline(time.Time) error { return nil }

// far returns a node of a distant server, and its client.
func far(t *testing.T, admits int) (*Node, *redis.Client) {
	t.Helper()
	// go-redis keeps timers in a global pool, and those of a bubble must not be used in another.
	for range 2 {
		runtime.GC()
	}
	server := &distant{admits: admits}
	client := redis.NewClient(&redis.Options{
		Addr: "192.0.2.1:1", Dialer: server.dial, DialerRetries: 1, PoolSize: 20, PipelinePoolSize: -1, MaxRetries: -1, Protocol: 2,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	return New(client), client
}

// A crowd are callers that call again at once, until they are told to stop.
type crowd struct {
	wg    sync.WaitGroup
	over  atomic.Bool
	late  atomic.Int64 // calls that took longer than a trip
	calls atomic.Int64
}

// add adds a caller. It waits a bit after each call, so that no two come together for long.
func (c *crowd) add(i int, pause time.Duration, call func() error) {
	c.wg.Go(func() {
		for !c.over.Load() {
			time.Sleep(pause + time.Duration(i)*7*time.Microsecond)
			begin := time.Now()
			if err := call(); err != nil || time.Since(begin) > aLongWay+tick {
				c.late.Add(1)
			}
			c.calls.Add(1)
		}
	})
}

// start forgets the calls before.
func (c *crowd) start() { c.late.Store(0); c.calls.Store(0) }

// addCallers adds callers of a node.
func (c *crowd) addCallers(n *Node, callers int) {
	for i := range callers {
		c.add(i, time.Millisecond, func() error { return do(n, Command("get")).Err })
	}
}

// stop ends crowds, and closes the client of n.
func stop(t *testing.T, n *Node, client *redis.Client, crowds ...*crowd) {
	for _, c := range crowds {
		c.over.Store(true)
	}
	for _, c := range crowds {
		c.wg.Wait()
	}
	synctest.Wait()
	require.True(t, idle(n))
	require.NoError(t, client.Close())
	time.Sleep(limit)
}

// TestCallersOfAPoolDoNotWait: over a distance, no caller waits for others while the client has a
// connection for each.
func TestCallersOfAPoolDoNotWait(t *testing.T) {
	for _, callers := range []int{5, 16, 20} {
		synctest.Test(t, func(t *testing.T) {
			n, client := far(t, 20)
			var c crowd
			c.addCallers(n, callers)
			time.Sleep(3 * time.Second)
			c.start()
			time.Sleep(5 * time.Second)
			require.Greater(t, c.calls.Load(), int64(callers*200))
			require.Zero(t, c.late.Load(), "of %d, %d callers", c.calls.Load(), callers)
			stop(t, n, client, &c)
		})
	}
}

// TestUserOfThePoolDoesNotWait: commands of the client's user find a connection, also beside more
// callers than there are connections. A server may admit half of them.
func TestUserOfThePoolDoesNotWait(t *testing.T) {
	for name, test := range map[string]struct {
		admits, users int
		lasts         time.Duration
	}{
		"all of them": {20, 8, 10 * time.Second},
		"few":         {10, 4, 2 * afterError}, // so that it is tried again
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, client := far(t, test.admits)
				var users, callers crowd
				for i := range test.users {
					users.add(i, time.Duration(i%4)*aLongWay/3, func() error { return client.Do(t.Context(), "get").Err() })
				}
				time.Sleep(time.Second)
				callers.addCallers(n, 40)
				time.Sleep(time.Second)
				users.start()
				time.Sleep(test.lasts)
				require.Greater(t, users.calls.Load(), int64(1000))
				require.Zero(t, users.late.Load(), "of %d", users.calls.Load())
				n.mu.Lock()
				most := n.share.most
				n.mu.Unlock()
				require.GreaterOrEqual(t, most, 6)
				require.LessOrEqual(t, most, test.admits-test.users)
				stop(t, n, client, &users, &callers)
			})
		})
	}
}
