package redlatch_test

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/faultproxy"
	"github.com/redlatch/redlatch/internal/redistest"
)

// site is one server, with a client for the test's own looks.
type site struct {
	options redis.Options
	direct  *redis.Client
	real    bool // no miniredis
}

// within returns d, or more where the machine may be busy and time is not that of a bubble.
func (s *site) within(d time.Duration) time.Duration {
	if s.real {
		return d + time.Second
	}
	return d
}

func newSite(t *testing.T, o redis.Options) *site {
	s := &site{options: o}
	s.direct = s.client(t)
	return s
}

// client returns a client of its own, as another process would have.
func (s *site) client(t *testing.T) *redis.Client {
	o := s.options
	c := redis.NewClient(&o)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// proxied returns a client that has made its connection, and the proxy that it goes through.
func (s *site) proxied(t *testing.T) (*faultproxy.Proxy, *redis.Client) {
	p := faultproxy.New(t, s.options.Network, s.options.Addr)
	c := p.Client(t)
	require.NoError(t, c.Ping(t.Context()).Err())
	return p, c
}

// everything returns all keys and values.
func (s *site) everything(t *testing.T) map[string]string {
	all := make(map[string]string)
	for _, key := range s.direct.Keys(t.Context(), "*").Val() {
		all[key] = s.direct.Get(t.Context(), key).Val()
	}
	return all
}

// set makes key hold value.
func (s *site) set(t *testing.T, key string, value any) {
	require.NoError(t, s.direct.Set(t.Context(), key, value, 0).Err())
}

// stamp returns the time in key.
func (s *site) stamp(t *testing.T, key string) int64 {
	n, err := s.direct.Get(t.Context(), key).Int64()
	require.NoError(t, err)
	return n
}

// onBoth runs a test on miniredis and on real Redis.
func onBoth(t *testing.T, run func(t *testing.T, s *site)) {
	t.Parallel()
	t.Run("miniredis", func(t *testing.T) {
		t.Parallel()
		m := miniredis.RunT(t)
		m.ClockTTL(true)
		run(t, newSite(t, redis.Options{Network: "tcp", Addr: m.Addr()}))
	})
	onRedis(t, run)
}

// onBothInTime is onBoth for a test that waits for locks to end: on miniredis no time passes.
func onBothInTime(t *testing.T, run func(t *testing.T, s *site)) {
	t.Parallel()
	t.Run("miniredis", func(t *testing.T) { inBubble(t, run) })
	onRedis(t, run)
}

// inBubble runs a test on miniredis and on a clock that stands still while anybody is at work.
func inBubble(t *testing.T, run func(t *testing.T, s *site)) {
	synctest.Test(t, func(t *testing.T) {
		m := miniredis.NewMiniRedis()
		m.ClockTTL(true)
		t.Cleanup(m.Close)
		defer time.Sleep(time.Minute) // idle goroutines end
		run(t, newSite(t, redis.Options{
			Addr:   "127.0.0.1:6379",
			Dialer: func(context.Context, string, string) (net.Conn, error) { return m.Dial() },
		}))
	})
}

func onRedis(t *testing.T, run func(t *testing.T, s *site)) {
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, *redistest.Start(t).Options())
		s.real = true
		run(t, s)
	})
}

// newLegacy returns a Locker whose locks are not renewed, for a machine that may be busy.
func newLegacy(t *testing.T, client redis.UniversalClient, opts ...redlatch.Option) redlatch.Locker {
	t.Helper()
	opts = append([]redlatch.Option{redlatch.WithoutRenewal(), patience}, opts...)
	l, err := redlatch.NewLegacySetNX(client, opts...)
	require.NoError(t, err)
	return l
}
