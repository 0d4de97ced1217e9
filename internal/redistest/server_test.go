package redistest

import (
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { Main(m) }

func TestServerEndsWithItsTest(t *testing.T) {
	for name, start := range map[string]func(testing.TB, ...string) *Server{"unix": Start, "tcp": StartTCP} {
		t.Run(name, func(t *testing.T) {
			var s *Server
			t.Run("the test", func(t *testing.T) {
				s = start(t)
				s.Pause()
			})
			if s == nil {
				t.Skip("the server was not started")
			}
			require.NoDirExists(t, s.dir)
			_, err := net.Dial(s.Network(), s.Addr())
			require.Error(t, err)
		})
	}
}

func TestKilledServerRefusesUntilItIsRestarted(t *testing.T) {
	for name, start := range map[string]func(testing.TB, ...string) *Server{"unix": Start, "tcp": StartTCP} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			client := s.Client(t)
			require.NoError(t, client.Set(t.Context(), "k", "v", 0).Err())

			s.Kill()
			s.Kill()
			_, err := net.Dial(s.Network(), s.Addr())
			require.ErrorIs(t, err, syscall.ECONNREFUSED)

			s.Restart(t)
			require.ErrorIs(t, client.Get(t.Context(), "k").Err(), redis.Nil)
		})
	}
}

func TestRestartEmptyForgetsTheAppendOnlyFile(t *testing.T) {
	s := Start(t, "--appendonly", "yes", "--appendfsync", "always")
	client := s.Client(t)
	require.NoError(t, client.Set(t.Context(), "k", "v", 0).Err())
	s.RestartEmpty(t)
	require.ErrorIs(t, client.Get(t.Context(), "k").Err(), redis.Nil)

	require.NoError(t, client.Set(t.Context(), "k", "w", 0).Err())
	s.Restart(t)
	require.Equal(t, "w", client.Get(t.Context(), "k").Val(), "its own file is kept")
}

func TestPausedServerCarriesOutAtResume(t *testing.T) {
	s := Start(t)
	client := s.Client(t)
	require.NoError(t, client.Ping(t.Context()).Err())

	s.Pause()
	impatient := s.Options()
	impatient.MaxRetries = -1
	impatient.ReadTimeout = 50 * time.Millisecond
	paused := redis.NewClient(impatient)
	defer paused.Close()
	require.ErrorIs(t, paused.Ping(t.Context()).Err(), os.ErrDeadlineExceeded)

	reply := make(chan error, 1)
	// The test owns this goroutine, which ends with the reply, and waits for it below.
	go func() { reply <- client.Set(t.Context(), "k", "v", 0).Err() }()
	s.Resume()
	require.NoError(t, <-reply)
}

func TestFaultOnADeadServerPanics(t *testing.T) {
	s := Start(t)
	s.Kill()
	require.Panics(t, s.Pause)
	require.Panics(t, s.Resume)
}

func TestMissingRedisSkipsUnlessItIsRequired(t *testing.T) {
	const line = "redis-server is not installed: real-Redis test skipped"
	t.Setenv("PATH", t.TempDir())
	t.Setenv("REDLATCH_REDIS_SERVER", "")
	for name, start := range map[string]func(tb testing.TB){
		"Start":    func(tb testing.TB) { Start(tb) },
		"StartTCP": func(tb testing.TB) { StartTCP(tb) },
		"Shared":   func(tb testing.TB) { StopShared(); Shared(tb) },
	} {
		t.Setenv("REDLATCH_REQUIRE_REDIS", "")
		o := observe(t, start)
		require.Equal(t, line, o.skipped, name)
		t.Setenv("REDLATCH_REQUIRE_REDIS", "1")
		o = observe(t, start)
		require.Equal(t, line, o.failed, name)
		require.Empty(t, o.skipped, name)
	}
}

// observer is a testing.TB that records how a test would have ended.
type observer struct {
	testing.TB
	skipped, failed string
}

func (o *observer) Skip(args ...any)  { o.skipped = fmt.Sprint(args...); panic(o) }
func (o *observer) Fatal(args ...any) { o.failed = fmt.Sprint(args...); panic(o) }

// observe runs f to the point where its test would end.
func observe(t *testing.T, f func(tb testing.TB)) (o *observer) {
	t.Helper()
	o = &observer{TB: t}
	defer func() {
		if r := recover(); r != nil && r != any(o) {
			panic(r)
		}
	}()
	f(o)
	return o
}
