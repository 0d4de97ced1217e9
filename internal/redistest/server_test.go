package redistest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	code := m.Run()
	StopShared()
	os.Exit(code)
}

func TestEveryKindOfServerAnswersAtItsAddress(t *testing.T) {
	for name, start := range map[string]func(testing.TB, ...string) *Server{
		"unix":   Start,
		"tcp":    StartTCP,
		"shared": func(tb testing.TB, _ ...string) *Server { return Shared(tb) },
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			require.Equal(t, s.Network(), s.Options().Network)
			require.Equal(t, s.Addr(), s.Options().Addr)
			require.NoError(t, s.Client(t).Ping(t.Context()).Err())
		})
	}
}

func TestUserHasItsRightsOnly(t *testing.T) {
	user := redis.NewClient(Start(t).User(t, "~*", "+get"))
	defer user.Close()
	require.ErrorIs(t, user.Get(t.Context(), "k").Err(), redis.Nil)
	require.ErrorContains(t, user.Set(t.Context(), "k", "v", 0).Err(), "NOPERM")
}

func TestServerKeepsNothingUnlessItsArgsSaySo(t *testing.T) {
	config := Start(t).Client(t).ConfigGet(t.Context(), "*").Val()
	require.Empty(t, config["save"])
	require.Equal(t, "no", config["appendonly"])
	require.Equal(t, "0", config["port"])

	config = Start(t, "--appendonly", "yes").Client(t).ConfigGet(t.Context(), "*").Val()
	require.Equal(t, "yes", config["appendonly"])
}

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

func TestTakenPortIsPassedOver(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	ports := 0
	s := startTCP(t, func() int {
		if ports++; ports == 1 {
			return taken.Addr().(*net.TCPAddr).Port
		}
		return randomPort()
	}, nil)
	require.Greater(t, ports, 1)
	require.NotEqual(t, taken.Addr().String(), s.Addr())
	require.NoError(t, s.Client(t).Ping(t.Context()).Err())
}

func TestClusterHasRoomForItsBusPort(t *testing.T) {
	s := StartTCP(t, "--cluster-enabled", "yes")
	require.Contains(t, s.Client(t).ClusterInfo(t.Context()).Val(), "cluster_known_nodes:1")
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

func TestRestartKeepsTheAppendOnlyFile(t *testing.T) {
	s := Start(t, "--appendonly", "yes", "--appendfsync", "always")
	client := s.Client(t)
	before := client.InfoMap(t.Context(), "server").Item("Server", "run_id")
	require.NotEmpty(t, before)
	require.NoError(t, client.Set(t.Context(), "k", "v", 0).Err())
	s.Restart(t)
	require.Equal(t, "v", client.Get(t.Context(), "k").Val())
	require.NotEqual(t, before, client.InfoMap(t.Context(), "server").Item("Server", "run_id"))
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

func TestPausedServerCanBeRestarted(t *testing.T) {
	s := Start(t)
	s.Pause()
	s.Restart(t)
	require.NoError(t, s.Client(t).Ping(t.Context()).Err())
}

func TestFaultOnADeadServerPanics(t *testing.T) {
	s := Start(t)
	s.Kill()
	require.Panics(t, s.Pause)
	require.Panics(t, s.Resume)
}

func TestSharedIsOneServerUntilItIsStopped(t *testing.T) {
	var first *Server
	t.Run("first use", func(t *testing.T) { first = Shared(t) })
	if first == nil {
		t.Skip("the server was not started")
	}
	require.Same(t, first, Shared(t))
	require.NoError(t, first.Client(t).Ping(context.Background()).Err())

	StopShared()
	StopShared()
	require.NoDirExists(t, first.dir)
	require.NotSame(t, first, Shared(t))
}

func TestFailedStartQuotesTheLogAndLeavesNothing(t *testing.T) {
	t.Setenv("TMPDIR", shortDir(t))
	tb := observe(t, func(tb testing.TB) { Start(tb, "--no-such-option", "yes") })
	if tb.skipped != "" {
		t.Skip(tb.skipped)
	}
	require.Contains(t, tb.failed, "redis-server has exited")
	require.Contains(t, tb.failed, "no-such-option")
	left, err := filepath.Glob(filepath.Join(os.TempDir(), "rl*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestServerThatDoesNotAnswerIsKilled(t *testing.T) {
	mustBeInstalled(t)
	dir := shortDir(t)
	_, err := launch(dir, []string{"--port", "0", "--requirepass", "secret"}, 300*time.Millisecond)
	require.ErrorContains(t, err, "redis-server does not answer after 300ms:\n")
	_, err = net.Dial("unix", filepath.Join(dir, socketName))
	require.Error(t, err)
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
		t.Run(name, func(t *testing.T) {
			t.Setenv("REDLATCH_REQUIRE_REDIS", "")
			require.Equal(t, observer{skipped: line}, outcome(observe(t, start)))
			t.Setenv("REDLATCH_REQUIRE_REDIS", "1")
			require.Equal(t, observer{failed: line}, outcome(observe(t, start)))
		})
	}
}

func TestServerRunsTheProgramThatTheEnvironmentNames(t *testing.T) {
	mustBeInstalled(t)
	usual, err := exec.LookPath(binary())
	require.NoError(t, err)
	dir := t.TempDir()
	other := filepath.Join(dir, "another server")
	script := fmt.Sprintf("#!/bin/sh\necho \"$0\" >'%s/ran'\nexec '%s' \"$@\"\n", dir, usual)
	require.NoError(t, os.WriteFile(other, []byte(script), 0o700))
	t.Setenv("REDLATCH_REDIS_SERVER", other)

	s := Start(t)
	require.NoError(t, s.Client(t).Ping(t.Context()).Err())
	ran, err := os.ReadFile(filepath.Join(dir, "ran"))
	require.NoError(t, err)
	require.Equal(t, other+"\n", string(ran))

	t.Setenv("REDLATCH_REDIS_SERVER", filepath.Join(dir, "missing"))
	require.Contains(t, outcome(observe(t, func(tb testing.TB) { Start(tb) })).failed, "REDLATCH_REDIS_SERVER")
}

// observer is a testing.TB that records how a test would have ended.
type observer struct {
	testing.TB
	skipped, failed string
}

func (o *observer) Skip(args ...any)  { o.skipped = fmt.Sprint(args...); panic(o) }
func (o *observer) Fatal(args ...any) { o.failed = fmt.Sprint(args...); panic(o) }

// observe runs f to the point where its test would end.
func observe(t *testing.T, f func(tb testing.TB)) *observer {
	t.Helper()
	o := &observer{TB: t}
	func() {
		defer func() {
			if r := recover(); r != nil && r != any(o) {
				panic(r)
			}
		}()
		f(o)
	}()
	return o
}

func outcome(o *observer) observer {
	return observer{skipped: o.skipped, failed: strings.TrimSpace(o.failed)}
}

// shortDir is t.TempDir with a path that is short enough for a socket.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "rl") //nolint:usetesting // its paths are too long
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
