// Package redistest starts real redis-server processes for tests.
//
// A server has its own new directory and writes nothing to disk unless its args say so. It ends
// with the test that started it and never outlives the test binary, even one that panics or is
// killed. If redis-server is not installed, the test is skipped, or fails if REDLATCH_REQUIRE_REDIS
// is set. REDLATCH_REDIS_SERVER names another program, such as another version or valkey-server, by
// a name in PATH or an absolute path. A test fails if that is missing.
package redistest

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Server is one redis-server process and, after [Server.Restart], its successors. Its
// methods may be called from several goroutines.
type Server struct {
	network string
	addr    string
	dir     string
	program string
	args    []string

	mu      sync.Mutex // guards the fields below
	process *process   // nil while no process runs
}

// Start returns a server that listens on a unix socket and answers. It ends with tb.
//
// args are redis-server's, as in "--appendonly", "yes"; they win over the defaults, which
// are no TCP port, no snapshots and no append-only file.
func Start(tb testing.TB, args ...string) *Server {
	tb.Helper()
	s := mustOpen(tb, Binary(), "", args)
	tb.Cleanup(s.close)
	return s
}

// StartProgram is like [Start] with a program that does what redis-server does.
func StartProgram(tb testing.TB, program string) *Server {
	tb.Helper()
	s := mustOpen(tb, program, "", nil)
	tb.Cleanup(s.close)
	return s
}

// StartTCP is like [Start] with a server that listens on a TCP port of 127.0.0.1.
func StartTCP(tb testing.TB, args ...string) *Server {
	tb.Helper()
	s := mustOpen(tb, Binary(), plainPort, args)
	tb.Cleanup(s.close)
	return s
}

// Binary is the program that servers run.
func Binary() string { return cmp.Or(os.Getenv("REDLATCH_REDIS_SERVER"), "redis-server") }

// MustBeInstalled skips a test that starts a server, or fails it, as Start does if redis-server is not
// installed.
func MustBeInstalled(tb testing.TB) {
	tb.Helper()
	if os.Getenv("REDLATCH_REDIS_SERVER") == "" {
		MustHave(tb, "redis-server")
	} else if _, err := exec.LookPath(Binary()); err != nil {
		tb.Fatal("REDLATCH_REDIS_SERVER: ", err)
	}
}

// Skips reports whether tests that start a server are skipped, since redis-server is not installed.
func Skips() bool {
	_, err := exec.LookPath(Binary())
	return err != nil && os.Getenv("REDLATCH_REDIS_SERVER") == "" && os.Getenv("REDLATCH_REQUIRE_REDIS") == ""
}

// MustHave skips a test that needs a program if it is not installed. If REDLATCH_REQUIRE_REDIS is
// set, the test fails.
func MustHave(tb testing.TB, program string) {
	tb.Helper()
	if _, err := exec.LookPath(program); err == nil {
		return
	}
	missing := program + " is not installed: test skipped"
	if os.Getenv("REDLATCH_REQUIRE_REDIS") != "" {
		tb.Fatal(missing)
	}
	tb.Skip(missing)
}

// The options of redis-server for its TCP port.
const (
	plainPort = "--port"
	tlsPort   = "--tls-port"
)

// mustOpen returns a server, which the caller must close. kind is the option for its TCP port, or "".
// It tries several ports. They are below those that outgoing connections are given, so that none of
// them takes the port while a server restarts, and leave room for the bus port of a cluster, which
// is 10,000 higher.
func mustOpen(tb testing.TB, program, kind string, args []string) *Server {
	tb.Helper()
	MustBeInstalled(tb)
	for try := 1; ; try++ {
		port := 0
		if kind != "" {
			port = 20_000 + rand.IntN(10_000)
		}
		s, err := open(program, kind, port, args)
		switch {
		case err == nil:
			return s
		case kind == tlsPort && strings.Contains(err.Error(), "Bad directive"):
			tb.Skip("this server was built without TLS: test skipped")
		}
		if try == 10 || !strings.Contains(err.Error(), "Address already in use") {
			tb.Fatal(err)
		}
	}
}

// open starts a server on a unix socket and, unless port is 0, on that port too. After an
// error nothing is left of it.
//
// The socket is there in any case because it shows who answers: a port may belong to
// somebody else's server.
func open(program, kind string, port int, args []string) (*Server, error) {
	// The path of a unix socket is limited to about 100 bytes: tb.TempDir is too long.
	dir, err := os.MkdirTemp("", "rl")
	if err != nil {
		return nil, err
	}
	s := &Server{network: "unix", addr: filepath.Join(dir, socketName), dir: dir, program: program}
	s.args = []string{"--bind", "127.0.0.1", "--port", "0", "--save", "", "--appendonly", "no"}
	if kind != "" {
		s.network, s.addr = "tcp", "127.0.0.1:"+strconv.Itoa(port)
		s.args = append(s.args, kind, strconv.Itoa(port))
	}
	s.args = append(s.args, args...)
	if s.process, err = launch(s.dir, s.program, s.args); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// close ends the server and removes its directory.
func (s *Server) close() {
	s.Kill()
	// A directory that cannot be removed is no reason to fail a test.
	_ = os.RemoveAll(s.dir)
}

// Network is the Network of redis.Options: "unix" or "tcp".
func (s *Server) Network() string { return s.network }

// Addr is the Addr of redis.Options. It stays the same when the server restarts.
func (s *Server) Addr() string { return s.addr }

// Options returns fresh options that reach the server and are otherwise go-redis' own.
func (s *Server) Options() *redis.Options {
	return &redis.Options{Network: s.network, Addr: s.addr}
}

// Client returns a client with [Server.Options]. It is closed at the end of tb.
func (s *Server) Client(tb testing.TB) *redis.Client {
	tb.Helper()
	return NewClient(tb, s.Options())
}

// NewClient returns a client that is closed at the end of tb. It is a variable, so that .ci/over can
// have the tests of a package run over another library than go-redis.
var NewClient = func(tb testing.TB, o *redis.Options) *redis.Client {
	client := redis.NewClient(o)
	// A test may have closed its client already.
	tb.Cleanup(func() { _ = client.Close() })
	return client
}

// NewCluster is like [NewClient], of a Cluster.
var NewCluster = func(tb testing.TB, o *redis.ClusterOptions) *redis.ClusterClient {
	client := redis.NewClusterClient(o)
	tb.Cleanup(func() { _ = client.Close() })
	return client
}

// NewFailover is like [NewClient], of the primary of Sentinels.
var NewFailover = func(tb testing.TB, o *redis.FailoverOptions) *redis.Client {
	client := redis.NewFailoverClient(o)
	tb.Cleanup(func() { _ = client.Close() })
	return client
}

// KeepsReplicas says that the clients keep their connections to a server that has become a replica.
// go-redis does not. Those of rueidis end with its ConnLifetime.
var KeepsReplicas bool

// User returns [Server.Options] of the user locks, who has the given rights, in the words of ACL
// SETUSER. Redis 5 has no ACL: there the test is skipped.
func (s *Server) User(tb testing.TB, rights ...string) *redis.Options {
	tb.Helper()
	o := s.Options()
	o.Username, o.Password = "locks", "secret"
	line := []any{"acl", "setuser", o.Username, "reset", "on", ">" + o.Password}
	for _, right := range rights {
		line = append(line, right)
	}
	err := command(tb, s, line...)
	if redis.HasErrorPrefix(err, "unknown command") {
		tb.Skip("this server has no ACL: test skipped")
	}
	if err != nil {
		tb.Fatalf("redistest: %v: %v", rights, err)
	}
	return o
}

// Kill ends the process like kill -9 and returns once it has exited. Connections are refused until
// Restart. If the server does not run, Kill does nothing.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.killLocked()
}

func (s *Server) killLocked() {
	if s.process != nil {
		s.process.kill()
		s.process = nil
	}
}

// Restart ends the process as Kill does, starts another one with the same address, args
// and directory, and returns once that answers. Data survive only if args made the server
// append them to a file.
func (s *Server) Restart(tb testing.TB) {
	tb.Helper()
	s.restart(tb, func() error { return nil })
}

// RestartEmpty is like [Server.Restart], but the successor finds none of the files.
func (s *Server) RestartEmpty(tb testing.TB) {
	tb.Helper()
	s.restart(tb, func() error {
		files, err := filepath.Glob(filepath.Join(s.dir, "*"))
		for _, file := range files {
			err = errors.Join(err, os.RemoveAll(file))
		}
		return err
	})
}

// restart calls between while no process runs.
func (s *Server) restart(tb testing.TB, between func() error) {
	tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.killLocked()
	if err := between(); err != nil {
		tb.Fatal(err)
	}
	next, err := launch(s.dir, s.program, s.args)
	if err != nil {
		tb.Fatal(err)
	}
	s.process = next
}

// Pause stops the process without ending it. Connections stay open and new ones are accepted, but
// commands get no reply before Resume. It panics if no process runs, since a test without its fault
// proves nothing.
func (s *Server) Pause() { s.signal("STOP") }

// Resume ends a Pause. Commands sent meanwhile are carried out then.
func (s *Server) Resume() { s.signal("CONT") }

func (s *Server) signal(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		panic("redistest: the server does not run")
	}
	if err := s.process.signal(name); err != nil {
		panic("redistest: SIG" + name + " was not sent: " + err.Error())
	}
}
