package behavior_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/locktest"
)

// A port takes connections, each after a while, until it is closed.
type port struct {
	dial func(ctx context.Context, network, addr string) (net.Conn, error)

	mu     sync.Mutex // guards the fields below
	closed bool
	open   []net.Conn
}

// connect is the dialer of a client.
func (p *port) connect(ctx context.Context, network, addr string) (net.Conn, error) {
	time.Sleep(20 * time.Millisecond) // of the bubble
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	conn, err := p.dial(ctx, network, addr)
	p.open = append(p.open, conn)
	return conn, err
}

// shut closes the port and its connections, or opens it.
func (p *port) shut(closed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = closed
	for _, conn := range p.open {
		_ = conn.Close()
	}
	p.open = nil
}

// TestRequestsAreServedASecondAfterAClosedPort: nobody listens at the address of a server for 10 s. Requests come all
// the time, each with a key of its own, so the oldest of those that wait have little time left. go-redis looks once a
// second whether it can connect. A request is served soon after that, at whatever phase of the second the port opens.
func TestRequestsAreServedASecondAfterAClosedPort(t *testing.T) {
	t.Parallel()
	for name, kind := range only("SetNXPX", "Semaphore", "LegacySetNX") {
		for phase := range 4 {
			locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
				o := s.Options
				p := &port{dial: o.Dialer}
				o.Dialer, o.PoolSize = p.connect, 10
				l := made(kind(locktest.Closing(t, redis.NewClient(&o)), redlatch.WithMaxWait(5*time.Second)))
				warm(t, l)
				p.shut(true)
				opens := time.Now().Add(10*time.Second + time.Duration(phase)*250*time.Millisecond)
				time.AfterFunc(time.Until(opens), func() { p.shut(false) })
				first := make(chan time.Time, 1)
				var requests sync.WaitGroup
				for i := 0; time.Since(opens) < 3*time.Second && len(first) == 0; i++ {
					requests.Go(func() {
						key := fmt.Sprint(i)
						if redlatch.Do(t.Context(), l, key, func(context.Context, *redlatch.Lock) error { return nil }) == nil {
							select {
							case first <- time.Now():
							default:
							}
						}
					})
					time.Sleep(10 * time.Millisecond)
				}
				requests.Wait()
				require.Less(t, await(t, first, "a request is served").Sub(opens), 1200*time.Millisecond, name)
			})
		}
	}
}
