package faultproxy

import (
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
)

func TestLostReplyIsCarriedOut(t *testing.T) {
	m, p := front(t)
	client := single(t, p)
	p.LoseReplies(1, "SET")
	require.Empty(t, client.Get(t.Context(), "k").Val())
	require.Zero(t, p.Lost())

	require.ErrorIs(t, client.Set(t.Context(), "k", "v", 0).Err(), io.EOF)
	m.CheckGet(t, "k", "v")
	require.Equal(t, 1, p.Lost())

	require.NoError(t, client.Set(t.Context(), "k", "w", 0).Err())
	require.Equal(t, 1, p.Lost())
}

func TestLostRequestIsNotCarriedOut(t *testing.T) {
	m, p := front(t)
	client := single(t, p)
	p.LoseRequests(1, "set")
	p.LoseReplies(1, "set")
	before := p.Requests()
	require.Error(t, client.Set(t.Context(), "k", "v", 0).Err())
	require.False(t, m.Exists("k"))
	require.Equal(t, before, p.Requests())
	require.Equal(t, 1, p.Lost())

	// The reply's loss is still to come.
	require.ErrorIs(t, client.Set(t.Context(), "k", "v", 0).Err(), io.EOF)
	m.CheckGet(t, "k", "v")
	require.Equal(t, 2, p.Lost())
}

func TestExactlyTheNextRepliesAreLost(t *testing.T) {
	m, p := front(t)
	const clients, losses = 20, 7
	all := make([]*redis.Client, clients)
	for i := range all {
		all[i] = single(t, p)
	}
	p.LoseReplies(losses, "set")

	errs := make([]error, clients)
	var wg sync.WaitGroup
	for i, client := range all {
		// The test owns these goroutines, which end with the reply, and waits below.
		wg.Go(func() { errs[i] = client.Set(t.Context(), fmt.Sprint("k", i), "v", 0).Err() })
	}
	wg.Wait()
	failed := 0
	for i, err := range errs {
		m.CheckGet(t, fmt.Sprint("k", i), "v")
		if err != nil {
			require.ErrorIs(t, err, io.EOF)
			failed++
		}
	}
	require.Equal(t, losses, failed)
	require.Equal(t, losses, p.Lost())
}

func TestAnyRequestIsLostForTheEmptyText(t *testing.T) {
	_, p := front(t)
	client := single(t, p)
	p.LoseReplies(1, "")
	require.ErrorIs(t, client.Ping(t.Context()).Err(), io.EOF)
	require.Equal(t, 1, p.Lost())
}

func TestLossIgnoresCase(t *testing.T) {
	m, p := front(t)
	for _, text := range []string{"set", "SET", "sEt"} {
		conn := dial(t, p)
		p.LoseRequests(1, text)
		send(t, conn, set)
		require.Error(t, readError(t, conn, limit))
	}
	require.False(t, m.Exists("k"))
	require.Equal(t, 3, p.Lost())
}

func TestLossCanBeTakenBack(t *testing.T) {
	_, p := front(t)
	client := single(t, p)
	p.LoseReplies(1, "")
	p.LoseReplies(0, "")
	p.LoseRequests(1, "")
	p.LoseRequests(0, "")
	require.NoError(t, client.Ping(t.Context()).Err())
	require.Zero(t, p.Lost())
}

func TestPipelineIsLostOnce(t *testing.T) {
	m, p := front(t)
	client := single(t, p)
	p.LoseReplies(2, "set")
	_, err := client.Pipelined(t.Context(), func(pipe redis.Pipeliner) error {
		pipe.Set(t.Context(), "a", "1", 0)
		pipe.Set(t.Context(), "b", "2", 0)
		return nil
	})
	require.ErrorIs(t, err, io.EOF)
	m.CheckGet(t, "a", "1")
	m.CheckGet(t, "b", "2")
	require.Equal(t, 1, p.Lost())

	require.ErrorIs(t, client.Set(t.Context(), "c", "3", 0).Err(), io.EOF)
	require.Equal(t, 2, p.Lost())
}

// The reply that arrives may be that of an earlier request. The client must not see the end of the
// connection before the lost request was carried out.
func TestLostRequestIsDoneWhenItsClientSeesTheEnd(t *testing.T) {
	addr, step, done := slowServer(t)
	p := New(t, "tcp", addr)
	conn := dial(t, p)
	p.LoseReplies(1, "b")
	send(t, conn, "a")
	eventually(t, func() bool { return p.Requests() == 1 })
	send(t, conn, "b")
	eventually(t, func() bool { return p.Requests() == 2 })

	step <- true
	require.Equal(t, byte('a'), <-done)
	eventually(t, func() bool { return p.Lost() == 1 })
	require.ErrorIs(t, readError(t, conn, 20*time.Millisecond), os.ErrDeadlineExceeded)

	step <- true
	require.ErrorIs(t, readError(t, conn, limit), io.EOF)
	require.Equal(t, byte('b'), <-done)
	require.Equal(t, 1, p.Lost())
}

func TestConnectionIsLostOnce(t *testing.T) {
	addr, step, _ := slowServer(t)
	p := New(t, "tcp", addr)
	conn := dial(t, p)
	p.LoseReplies(2, "")
	for i := range 2 {
		send(t, conn, "a")
		eventually(t, func() bool { return p.Requests() == i+1 })
	}
	step <- true
	step <- true
	require.ErrorIs(t, readError(t, conn, limit), io.EOF)
	require.Equal(t, 1, p.Lost())
	p.mu.Lock()
	defer p.mu.Unlock()
	require.Equal(t, 1, p.loseReplies.n)
}

// slowServer serves one connection, whose requests are one byte each. For each step it sends the
// byte of a request to done, and answers the request.
func slowServer(t *testing.T) (addr string, step chan<- bool, done <-chan byte) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	steps, requests := make(chan bool), make(chan byte, 2)
	var wg sync.WaitGroup
	t.Cleanup(func() {
		_ = listener.Close()
		close(steps)
		wg.Wait()
	})
	// The test owns this goroutine, which ends when its proxy has closed the connection;
	// the cleanup waits for it.
	wg.Go(func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		request := make([]byte, 1)
		for {
			if _, err := conn.Read(request); err != nil {
				return
			}
			<-steps
			requests <- request[0]
			_, _ = conn.Write([]byte{'+'})
		}
	})
	return listener.Addr().String(), steps, requests
}

func TestFaultsOnRealRedis(t *testing.T) {
	server := redistest.Start(t)
	direct := server.Client(t)
	p := New(t, server.Network(), server.Addr())
	client := p.Client(t)
	require.NoError(t, client.Ping(t.Context()).Err())

	// go-redis sends a request whose reply was lost once more, and believes the second reply.
	p.LoseReplies(1, "nx")
	won, err := client.SetNX(t.Context(), "k", "token", time.Minute).Result()
	require.NoError(t, err)
	require.False(t, won)
	require.Equal(t, "token", direct.Get(t.Context(), "k").Val())
	require.Equal(t, 1, p.Lost())

	p.Silence()
	gone := dial(t, p)
	send(t, gone, "*2\r\n$3\r\nDEL\r\n$1\r\nk\r\n")
	require.NoError(t, gone.Close())
	eventually(t, func() bool { return held(p) == 2 })
	require.Equal(t, "token", direct.Get(t.Context(), "k").Val())
	p.Heal()
	eventually(t, func() bool { return direct.Exists(t.Context(), "k").Val() == 0 })

	// A server that never closes its side does not keep the proxy from ending.
	server.Pause()
	send(t, dial(t, p), ping)
}
