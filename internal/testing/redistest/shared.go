package redistest

import (
	"context"
	"flag"
	"os"
	"runtime/debug"
	"strconv"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/testing/race"
)

// shared is the server of the whole test binary.
var shared struct {
	mu     sync.Mutex // guards the fields below
	server *Server    // nil before the first use and after StopShared
}

// Shared returns the one server that all tests of the binary use, started at its first
// use. A test that puts a fault on it should take one of its own with [Start] instead.
//
// TestMain must be [Main], or call [StopShared] at its end.
func Shared(tb testing.TB) *Server {
	tb.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server == nil {
		shared.server = mustOpen(tb, Binary(), "", nil)
	}
	return shared.server
}

// StopShared ends the server of [Shared], if one was started.
func StopShared() {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server != nil {
		shared.server.close()
		shared.server = nil
	}
}

// silence drops what go-redis logs of each connection that a test breaks: a FAIL would be hard to
// find in it.
type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

// AtOnce is how many tests Main runs at once, even with fewer processors: many tests of locks wait for
// time to pass. More than these would keep each other from answering in time on a busy machine, unless
// nearly all of them wait. The race detector slows them down, so it runs half as many.
var AtOnce = 8

// Main is a TestMain that stops the server of [Shared], and keeps go-redis from logging. Unless
// -parallel is given, it runs AtOnce tests at once. Garbage is collected seldom, which
// saves a fifth of the processor time: a miniredis makes an interpreter for each script.
func Main(m *testing.M) {
	redis.SetLogger(silence{})
	flag.Parse()
	if parallel := flag.Lookup("test.parallel"); parallel.Value.String() == parallel.DefValue {
		atOnce := AtOnce
		if race.Detector() {
			atOnce /= 2
		}
		_ = flag.Set("test.parallel", strconv.Itoa(atOnce))
	}
	debug.SetGCPercent(400)
	code := m.Run()
	StopShared()
	os.Exit(code)
}
