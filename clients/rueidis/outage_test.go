package redlatchrueidis_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	redlatchrueidis "github.com/redlatch/redlatch/clients/rueidis"
	"github.com/redlatch/redlatch/internal/testing/locktest"
	"github.com/redlatch/redlatch/internal/testing/redistest"
)

// TestCommandWithoutReplyIsATimeout: rueidis does not say whether it was sent. Here it was, so the
// server carries it out later. An attempt to lock is released then.
func TestCommandWithoutReplyIsATimeout(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	client := redlatchrueidis.New(connect(t, s)).(*redis.Client)
	l := locktest.SetNXPX(t, client, locktest.LongTTL, redlatch.WithOpTimeout(500*time.Millisecond))
	require.NoError(t, locktest.LockSoon(t, l, "k").Unlock(t.Context()))
	s.Pause()
	err := client.WithTimeout(100*time.Millisecond).Set(t.Context(), "sent", 1, 0).Err()
	var timeout net.Error
	require.ErrorAs(t, err, &timeout)
	require.True(t, timeout.Timeout())
	_, err = l.TryLock(t.Context(), "k")
	require.ErrorIs(t, err, redlatch.ErrUnavailable)
	s.Resume()
	other := s.Client(t)
	locktest.Eventually(t, "it is carried out", func() bool { return other.Exists(t.Context(), "sent").Val() == 1 })
	locktest.Eventually(t, "the lock is released", func() bool { return other.Exists(t.Context(), "k").Val() == 0 })
}

// TestClientThatIsMadeWhileRedisIsDownServesLater: with ForceSingleClient, rueidis returns it beside the
// error.
func TestClientThatIsMadeWhileRedisIsDownServesLater(t *testing.T) {
	t.Parallel()
	s := redistest.StartTCP(t)
	s.Kill()
	_, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.Addr()}})
	require.Error(t, err)
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.Addr()}, ForceSingleClient: true})
	require.Error(t, err)
	t.Cleanup(c.Close)
	l := locktest.SetNXPX(t, redlatchrueidis.New(c), locktest.Briefly)
	_, err = l.TryLock(t.Context(), "k")
	require.ErrorIs(t, err, redlatch.ErrUnavailable)
	s.Restart(t)
	require.NoError(t, locktest.LockSoon(t, l, "k").Unlock(t.Context()))
}

// TestNodesOfAQuorumHaveTheirAddresses in errors.
func TestNodesOfAQuorumHaveTheirAddresses(t *testing.T) {
	t.Parallel()
	var servers []*redistest.Server
	var nodes []redis.UniversalClient
	for range 3 {
		s := redistest.StartTCP(t)
		servers, nodes = append(servers, s), append(nodes, redlatchrueidis.New(connect(t, s)))
	}
	l, err := redlatch.NewRedlock(nodes, locktest.Briefly)
	require.NoError(t, err)
	servers[0].Kill()
	require.NoError(t, locktest.LockSoon(t, l, "k").Unlock(t.Context()))
	servers[1].Kill()
	_, err = l.TryLock(t.Context(), "k")
	require.ErrorIs(t, err, redlatch.ErrNoQuorum)
	for _, s := range servers[:2] {
		require.ErrorContains(t, err, s.Addr()+": ")
	}
}

// TestDialerThatDoesNotHeedItsCtxHoldsFewGoroutines, and no call for longer than its timeout. When it
// has returned, calls are served.
func TestDialerThatDoesNotHeedItsCtxHoldsFewGoroutines(t *testing.T) {
	s := redistest.StartTCP(t) // not parallel: it counts the goroutines of all
	var dials atomic.Int64
	goesOn := make(chan struct{})
	l, err := redlatch.NewSetNXPX(redlatchrueidis.New(connect(t, s, func(o *rueidis.ClientOption) {
		o.DialCtxFn = func(_ context.Context, addr string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
			if dials.Add(1) > 1 {
				<-goesOn
			}
			return net.Dial("tcp", addr) //nolint:noctx // that is the point
		}
	})), redlatch.WithOpTimeout(500*time.Millisecond))
	require.NoError(t, err)
	s.Restart(t)
	before := runtime.NumGoroutine()
	for range 3 {
		var calls sync.WaitGroup
		for i := range 200 {
			calls.Go(func() {
				if _, err := l.TryLock(t.Context(), fmt.Sprint("k", i)); err == nil {
					t.Error("there is no connection")
				}
			})
		}
		calls.Wait()
		require.Less(t, runtime.NumGoroutine()-before, 250)
	}
	close(goesOn)
	require.NoError(t, locktest.LockSoon(t, l, "k").Unlock(t.Context()))
}

// TestDatabaseIsInTheNamesOfChannels, since those of all databases share one space.
func TestDatabaseIsInTheNamesOfChannels(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := connect(t, s, func(o *rueidis.ClientOption) { o.SelectDB = 3 })
	l := locktest.SetNXPX(t, redlatchrueidis.NewInDatabase(c, 3), locktest.LongTTL)
	lock := locktest.MustLock(t, l, "k")
	next := locktest.WaitInLine(t, locktest.SetNXPX(t, redlatchrueidis.NewInDatabase(c, 3)), "k")
	require.Len(t, s.Client(t).PubSubChannels(t.Context(), "redlatch:3:*").Val(), 1)
	require.Zero(t, s.Client(t).Exists(t.Context(), "k").Val(), "it is in another database")
	require.NoError(t, lock.Unlock(t.Context()))
	require.NoError(t, (<-next).Unlock(t.Context()))
}

// traced counts commands, as a client of rueidisotel traces them. Its nodes are traced, too.
type traced struct {
	rueidis.Client
	commands *atomic.Int64
}

func (c traced) Do(ctx context.Context, command rueidis.Completed) rueidis.RedisResult {
	c.commands.Add(1)
	return c.Client.Do(ctx, command)
}

func (c traced) DoMulti(ctx context.Context, commands ...rueidis.Completed) []rueidis.RedisResult {
	c.commands.Add(int64(len(commands)))
	return c.Client.DoMulti(ctx, commands...)
}

func (c traced) Nodes() map[string]rueidis.Client {
	nodes := c.Client.Nodes()
	for addr, node := range nodes {
		nodes[addr] = traced{node, c.commands}
	}
	return nodes
}

// TestTracersOfBothClientsSeeCommands, on one server and on a Cluster.
func TestTracersOfBothClientsSeeCommands(t *testing.T) {
	t.Parallel()
	for name, addr := range map[string]string{
		"one server": redistest.StartTCP(t).Addr(), "a Cluster": redistest.StartCluster(t)[0].Addr(),
	} {
		var below, above atomic.Int64
		client := redlatchrueidis.New(traced{open(t, rueidis.ClientOption{InitAddress: []string{addr}}), &below})
		count := locktest.Count(&above)
		if cluster, is := client.(*redis.ClusterClient); is {
			cluster.OnNewNode(func(node *redis.Client) { node.AddHook(count) })
		} else {
			client.AddHook(count)
		}
		require.NoError(t, locktest.MustLock(t, locktest.SetNXPX(t, client), "k").Unlock(t.Context()), name)
		require.GreaterOrEqual(t, below.Load(), int64(2), name)
		require.GreaterOrEqual(t, above.Load(), int64(2), name)
	}
}
