package redistest

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { Main(m) }

// TestServer is killed, restarted and paused, on a socket and on a port. It ends with its test.
func TestServer(t *testing.T) {
	for name, start := range map[string]func(testing.TB, ...string) *Server{"unix": Start, "tcp": StartTCP} {
		t.Run(name, func(t *testing.T) {
			MustBeInstalled(t)
			var s *Server
			t.Run("the test", func(t *testing.T) {
				s = start(t, "--appendonly", "yes", "--appendfsync", "always")
				client := s.Client(t)
				get := func() (string, error) { return client.Get(t.Context(), "k").Result() }
				require.NoError(t, client.Set(t.Context(), "k", "v", 0).Err())

				s.Kill()
				s.Kill()
				_, err := net.Dial(s.Network(), s.Addr())
				require.ErrorIs(t, err, syscall.ECONNREFUSED)
				require.Panics(t, s.Pause)
				s.Restart(t)
				require.Equal(t, "v", client.Get(t.Context(), "k").Val())
				s.RestartEmpty(t)
				_, err = get()
				require.ErrorIs(t, err, redis.Nil)

				impatient := s.Options()
				impatient.MaxRetries = -1
				impatient.ReadTimeout = 50 * time.Millisecond
				paused := redis.NewClient(impatient)
				defer paused.Close()
				require.Eventually(t, func() bool { return paused.Ping(t.Context()).Err() == nil }, startLimit, time.Millisecond)
				s.Pause()
				require.ErrorIs(t, paused.Set(t.Context(), "k", "w", 0).Err(), os.ErrDeadlineExceeded)
				s.Resume()
				require.Eventually(t, func() bool { v, _ := get(); return v == "w" }, startLimit, time.Millisecond)
				s.Pause()
			})
			require.NoDirExists(t, s.dir)
			_, err := net.Dial(s.Network(), s.Addr())
			require.Error(t, err)
		})
	}
}

// TestMissingRedisSkipsUnlessItIsRequired: with the same line.
func TestMissingRedisSkipsUnlessItIsRequired(t *testing.T) {
	const line = "redis-server is not installed: test skipped"
	t.Setenv("PATH", t.TempDir())
	t.Setenv("REDLATCH_REDIS_SERVER", "")
	for required, want := range map[string]observer{"": {skipped: line}, "1": {failed: line}} {
		t.Setenv("REDLATCH_REQUIRE_REDIS", required)
		o := observer{}
		require.PanicsWithError(t, "over", func() { Start(&o) })
		require.Equal(t, want, o)
	}
}

// TestServerWithoutTLSSkips a test that needs it. Such a server does not know the option.
func TestServerWithoutTLSSkips(t *testing.T) {
	program := filepath.Join(t.TempDir(), "redis-server")
	script := "#!/bin/sh\necho Bad directive or wrong number of arguments\nexit 1\n"
	require.NoError(t, os.WriteFile(program, []byte(script), 0o700)) //nolint:gosec // it is run
	t.Setenv("REDLATCH_REDIS_SERVER", program)
	o := observer{TB: t}
	require.PanicsWithError(t, "over", func() { StartTLS(&o) })
	require.Equal(t, "this server was built without TLS: test skipped", o.skipped)
}

// observer is a testing.TB that records how a test would have ended.
type observer struct {
	testing.TB
	skipped, failed string
}

var errOver = errors.New("over")

func (o *observer) Helper()           {}
func (o *observer) Skip(args ...any)  { o.skipped = args[0].(string); panic(errOver) }
func (o *observer) Fatal(args ...any) { o.failed = args[0].(string); panic(errOver) }
