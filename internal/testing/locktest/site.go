package locktest

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/testing/ahead"
	"github.com/redlatch/redlatch/internal/testing/redistest"
)

// Site is one server, real or not.
type Site struct {
	Options redis.Options
	Direct  *redis.Client // for the test itself

	// Step sets the clock of the server forward. The TTLs of its keys stay. Only servers in a bubble have it.
	Step func(by time.Duration)
}

// NewSite returns the server that is reached by o.
func NewSite(t *testing.T, o redis.Options) *Site {
	direct := o
	return &Site{Options: o, Direct: Closing(t, redis.NewClient(&direct))}
}

// Client returns a new client, as another process would have.
func (s *Site) Client(t *testing.T) *redis.Client {
	o := s.Options
	return redistest.NewClient(t, &o)
}

// Closing returns client, and closes it at the end of the test.
func Closing[C io.Closer](t *testing.T, client C) C {
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// NodeOf returns s as if it were a node of several. A node is a database.
func NodeOf(t *testing.T, s *Site, node int) *Site {
	o := s.Options
	o.DB, o.Addr = node, fmt.Sprint("127.0.0.1:", 7000+node)
	return NewSite(t, o)
}

// InBubble runs a test on miniredis in a synctest bubble.
func InBubble(t *testing.T, run func(t *testing.T, s *Site)) {
	synctest.Test(t, func(t *testing.T) {
		m := ahead.New()
		t.Cleanup(m.Close)
		defer time.Sleep(time.Minute) // idle goroutines end
		var steps atomic.Int64
		now := func() time.Time { return ahead.Now().Add(time.Duration(steps.Load())) }
		s := NewSite(t, redis.Options{
			Addr:   "127.0.0.1:6379",
			Dialer: func(context.Context, string, string) (net.Conn, error) { return ahead.DialSet(m, now) },
		})
		s.Step = func(by time.Duration) { steps.Add(int64(by)) }
		run(t, s)
	})
}
