package behavior_test

import (
	"context"
	"crypto/x509"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/locktest"
)

// sick is a server whose connections can be cut. New ones are not made while dial has an error.
type sick struct {
	*miniredis.Miniredis
	mu    sync.Mutex // guards the fields below
	conns []net.Conn
	dial  error
}

func (s *sick) cut(dial error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, conn := range s.conns {
		_ = conn.Close()
	}
	s.conns, s.dial = nil, dial
}

func (s *sick) client(t *testing.T) *redis.Client {
	return locktest.Closing(t, redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:6379",
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.dial != nil {
				return nil, s.dial
			}
			conn, err := s.Dial()
			s.conns = append(s.conns, conn)
			return conn, err
		},
	}))
}

// answer has the server answer a command with an error, and hang up; "" is every command. Without
// an answer it only hangs up.
func (s *sick) answer(command, answer string) {
	s.Server().SetPreHook(func(p *server.Peer, cmd string, _ ...string) bool {
		if command != "" && command != cmd {
			return false
		}
		if answer != "" {
			p.WriteError(answer)
			p.Flush()
		}
		p.Close()
		return true
	})
}

// TestDegradedMeansThatSubscribeIsRefused: an outage of some seconds is not reported as that,
// whatever a server or a proxy says in it. A proxy that does not know SUBSCRIBE is reported, and
// one that forbids it.
func TestDegradedMeansThatSubscribeIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		begins func(s *sick)
		want   int64
	}{
		"a proxy without a server":   {begins: func(s *sick) { s.answer("", "") }},
		"its words for that":         {begins: func(s *sick) { s.answer("", "ERR no upstream host") }},
		"a script that runs":         {begins: func(s *sick) { s.answer("", "BUSY Redis is busy running a script.") }},
		"no connections are left":    {begins: func(s *sick) { s.answer("HELLO", "ERR max number of clients reached") }},
		"an unknown certificate":     {begins: func(s *sick) { s.cut(x509.UnknownAuthorityError{}) }},
		"a proxy without SUBSCRIBE":  {begins: func(s *sick) { s.answer("SUBSCRIBE", "") }, want: 1},
		"the right is missing":       {begins: func(s *sick) { s.answer("SUBSCRIBE", "NOPERM no permissions") }, want: 1},
		"SUBSCRIBE is slow to start": {begins: func(s *sick) { s.answer("SUBSCRIBE", "LOADING Redis is loading") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &sick{Miniredis: miniredis.NewMiniRedis()}
				s.ClockTTL(true)
				t.Cleanup(s.Close)
				defer time.Sleep(time.Minute) // idle goroutines end
				var degraded atomic.Int64
				hooks := redlatch.WithHooks(redlatch.Hooks{Degraded: func(context.Context, redlatch.Event) { degraded.Add(1) }})
				holder := mustLock(t, newLocker(t, s.client(t)), "k", redlatch.WithTTL(time.Minute))
				got := locktest.Standing(t, newLocker(t, s.client(t), hooks))
				time.Sleep(5 * time.Second)
				s.cut(nil)
				c.begins(s)
				time.Sleep(10 * time.Second)
				s.Server().SetPreHook(nil)
				s.cut(nil)
				time.Sleep(10 * time.Second)
				assert.Equal(t, c.want, degraded.Load())
				require.NoError(t, holder.Unlock(t.Context()))
				require.NoError(t, (<-got).Unlock(t.Context()))
			})
		})
	}
}
