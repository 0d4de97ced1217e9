package locktest

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/redistest"
)

// Site is one server, real or not.
type Site struct {
	Options redis.Options
	Direct  *redis.Client // for the test itself
	Real    bool          // not miniredis
}

// NewSite returns the server that is reached by o.
func NewSite(t *testing.T, o redis.Options) *Site {
	s := &Site{Options: o}
	s.Direct = s.Client(t)
	return s
}

// Client returns a new client, as another process would have.
func (s *Site) Client(t *testing.T) *redis.Client {
	o := s.Options
	c := redis.NewClient(&o)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Within returns d, plus a second on a real server, since the machine may be busy.
func (s *Site) Within(d time.Duration) time.Duration {
	if s.Real {
		return d + time.Second
	}
	return d
}

// OnBoth runs a test on miniredis and on real Redis.
func OnBoth(t *testing.T, run func(t *testing.T, s *Site)) {
	t.Parallel()
	t.Run("miniredis", func(t *testing.T) {
		t.Parallel()
		m := miniredis.RunT(t)
		m.ClockTTL(true)
		run(t, NewSite(t, redis.Options{Network: "tcp", Addr: m.Addr()}))
	})
	onRedis(t, run)
}

// OnBothInTime is [OnBoth] for a test that waits for locks to end: on miniredis that takes no real time.
func OnBothInTime(t *testing.T, run func(t *testing.T, s *Site)) {
	t.Parallel()
	t.Run("miniredis", func(t *testing.T) { InBubble(t, run) })
	onRedis(t, run)
}

// InBubble runs a test on miniredis in a synctest bubble.
func InBubble(t *testing.T, run func(t *testing.T, s *Site)) {
	synctest.Test(t, func(t *testing.T) {
		m := miniredis.NewMiniRedis()
		m.ClockTTL(true)
		t.Cleanup(m.Close)
		defer time.Sleep(time.Minute) // idle goroutines end
		run(t, NewSite(t, redis.Options{
			Addr:   "127.0.0.1:6379",
			Dialer: func(context.Context, string, string) (net.Conn, error) { return m.Dial() },
		}))
	})
}

func onRedis(t *testing.T, run func(t *testing.T, s *Site)) {
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		s := NewSite(t, *redistest.Start(t).Options())
		s.Real = true
		run(t, s)
	})
}
