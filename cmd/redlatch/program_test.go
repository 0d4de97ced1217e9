//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/locktest"
	"github.com/redlatch/redlatch/internal/testing/redistest"
)

// TestMain runs redlatch itself if the test binary was started under that name. So the tests run
// the code that they were built with, mutated or not.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "redlatch" {
		if os.Getenv(patient4s) != "" {
			testTimeout = []redlatch.Option{locktest.Patience}
		}
		main()
	}
	// A shell ignores some signals in what it runs in the background. The tests' programs must not
	// inherit that.
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
	redistest.AtOnce = 16 // most of them wait for seconds
	redistest.Main(m)
}

// longest is how long a test waits for an event. Only a failure reaches it.
const longest = time.Minute

// program is a run of redlatch, or of another program.
type program struct {
	*exec.Cmd
	t      *testing.T
	lines  chan string // of stdout; closed when nobody has stdout open any more
	stderr string      // the name of a file
	over   chan error  // what Wait returned
}

// binary returns a path to redlatch.
func binary(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "redlatch")
	require.NoError(t, os.Symlink(self, path))
	return path
}

// sleepless keeps a program with the race detector from sleeping for a second before it exits.
const sleepless = "GORACE=atexit_sleep_ms=0"

// patient4s is an environment variable by which redlatch waits longer for replies.
const patient4s = "REDLATCH_TEST_PATIENCE"

// redlatchCmd returns a command for start. It runs redlatch with urls as REDIS_URL, in a session of
// its own, so the terminal on which the tests run does not matter. It is patient with servers that
// will answer: all but nowhere, and those behind a proxy, which has an address of its own.
func redlatchCmd(t *testing.T, urls string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(binary(t), args...)
	cmd.Env = append(os.Environ(), "REDIS_URL="+urls, sleepless)
	if answers := regexp.MustCompile(`^((unix://\S+|redis://127\.0\.0\.1:\d{2,}\S*)\s*)+$`); answers.MatchString(urls) {
		cmd.Env = append(cmd.Env, patient4s+"=1")
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

// start starts cmd, whose stdout is read unless it has one. The end of t kills it.
func start(t *testing.T, cmd *exec.Cmd) *program {
	t.Helper()
	p := &program{Cmd: cmd, t: t, lines: make(chan string, 100), over: make(chan error, 1)}
	out, in, err := os.Pipe()
	require.NoError(t, err)
	errs, err := os.CreateTemp(t.TempDir(), "stderr")
	require.NoError(t, err)
	p.stderr = errs.Name()
	if cmd.Stderr = errs; cmd.Stdout == nil {
		cmd.Stdout = in
	}
	require.NoError(t, cmd.Start())
	in.Close()
	errs.Close()
	go func() { p.over <- cmd.Wait() }() // ends with the process
	go func() {                          // ends when nobody has stdout open
		defer close(p.lines)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.lines <- lines.Text()
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = out.Close()
	})
	return p
}

// dispatched returns the exit status and the stderr of arguments that need no process: nothing else may run
// meanwhile, so t must not be parallel.
func dispatched(t *testing.T, urls string, args ...string) (code int, stderr string) {
	t.Helper()
	t.Setenv("REDIS_URL", urls)
	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer null.Close()
	errs, err := os.CreateTemp(t.TempDir(), "stderr")
	require.NoError(t, err)
	defer errs.Close()
	in, out := os.Stdin, os.Stderr
	defer func() { os.Stdin, os.Stderr = in, out }()
	os.Stdin, os.Stderr = null, errs
	code, err = dispatch(args)
	if err != nil {
		complain(err)
	}
	text, err := os.ReadFile(errs.Name())
	require.NoError(t, err)
	return code, string(text)
}

// redlatchRun starts "redlatch run", which runs script with sh. $0 is "script".
func redlatchRun(t *testing.T, urls string, flags []string, script string) *program {
	t.Helper()
	args := append(append([]string{"run"}, flags...), "k", "--", "sh", "-c", script, "script")
	return start(t, redlatchCmd(t, urls, args...))
}

// line waits for a line of stdout.
func (p *program) line() string {
	p.t.Helper()
	select {
	case line, ok := <-p.lines:
		require.True(p.t, ok, "stdout has ended; stderr: %s", p.errors())
		return line
	case <-time.After(longest):
		require.Fail(p.t, "no line", p.errors())
	}
	return ""
}

// expect waits for these lines, in any order.
func (p *program) expect(lines ...string) {
	p.t.Helper()
	var got []string
	for range lines {
		got = append(got, p.line())
	}
	require.ElementsMatch(p.t, lines, got)
}

// group waits for a line with the pid of the command, and kills its group at the end of the test.
func (p *program) group() int {
	p.t.Helper()
	pid, err := strconv.Atoi(p.line())
	require.NoError(p.t, err)
	p.t.Cleanup(func() { _ = syscall.Kill(-pid, syscall.SIGKILL) })
	return pid
}

// gone waits until no process has stdout open: neither the command nor its children.
func (p *program) gone() {
	p.t.Helper()
	for end := time.After(longest); ; {
		select {
		case _, ok := <-p.lines:
			if !ok {
				return
			}
		case <-end:
			require.Fail(p.t, "stdout is still open", p.errors())
		}
	}
}

// code waits for the end and returns the exit status.
func (p *program) code() int {
	p.t.Helper()
	select {
	case err := <-p.over:
		if err != nil {
			require.True(p.t, errors.As(err, new(*exec.ExitError)), "%v", err)
		}
		return p.ProcessState.ExitCode()
	case <-time.After(longest):
		require.Fail(p.t, "it has not ended", p.errors())
	}
	return -1
}

// errors returns what is on stderr.
func (p *program) errors() string {
	p.t.Helper()
	text, err := os.ReadFile(p.stderr)
	require.NoError(p.t, err)
	return string(text)
}

// signal sends s to redlatch alone.
func (p *program) signal(s syscall.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.Process.Signal(s))
}

// pipe connects stdin to a pipe, for start.
func pipe(t *testing.T, cmd *exec.Cmd) io.WriteCloser {
	t.Helper()
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	return in
}

// server is a Redis server and a client of it for the test.
type server struct {
	url, network, addr string
	client             *redis.Client
}

// onMiniredis starts a miniredis for the test.
func onMiniredis(t *testing.T) *server {
	t.Helper()
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	require.NoError(t, m.Start())
	t.Cleanup(m.Close)
	return newServer(t, "redis://"+m.Addr(), "tcp", m.Addr())
}

// onRedis starts a real server for the test.
func onRedis(t *testing.T) *server {
	t.Helper()
	s := redistest.Start(t)
	return newServer(t, "unix://"+s.Addr(), s.Network(), s.Addr())
}

func newServer(t *testing.T, url, network, addr string) *server {
	t.Helper()
	client := redis.NewClient(&redis.Options{Network: network, Addr: addr})
	t.Cleanup(func() { _ = client.Close() })
	return &server{url: url, network: network, addr: addr, client: client}
}

// onServer runs a test on redis-server, or on miniredis where that is not installed.
func onServer(t *testing.T, test func(t *testing.T, s *server)) {
	t.Helper()
	t.Parallel()
	if redistest.Skips() {
		test(t, onMiniredis(t))
		return
	}
	test(t, onRedis(t))
}

// locker returns a Locker that stands for another process.
func (s *server) locker(t *testing.T, opts ...redlatch.Option) redlatch.Locker {
	t.Helper()
	l, err := redlatch.NewSetNXPX(s.client, append([]redlatch.Option{redlatch.WithOwner("other"), redlatch.WithOpTimeout(4 * time.Second)}, opts...)...)
	require.NoError(t, err)
	return l
}

// holds returns the token that holds k, or "" if k is free.
func (s *server) holds(t *testing.T) string {
	t.Helper()
	token, err := s.client.Get(context.Background(), "k").Result()
	if !errors.Is(err, redis.Nil) {
		require.NoError(t, err)
	}
	return token
}

// isClean checks that the server has no key but the register of fences.
func (s *server) isClean(t *testing.T) {
	t.Helper()
	keys, err := s.client.Keys(context.Background(), "*").Result()
	require.NoError(t, err)
	require.Subset(t, []string{"redlatch:fence"}, keys)
}

// nowhere is the URL of a Redis that is not there.
const nowhere = "redis://127.0.0.1:1"
