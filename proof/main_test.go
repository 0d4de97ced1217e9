package proof

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

var (
	seedFlag = flag.Uint64("seed", 0, "what random choices come from; 0: a fresh one, which is printed")
	soakFlag = flag.Duration("soak", 0, "how long Soak runs; 0: not at all")
)

// seed returns the seed of a test's random choices, and logs it.
func seed(tb testing.TB) uint64 {
	tb.Helper()
	s := *seedFlag
	if s == 0 {
		s = 1 + rand.Uint64N(1<<32)
	}
	tb.Logf("-seed %d", s)
	return s
}

// quiet drops go-redis's messages about connections that were cut.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

func TestMain(m *testing.M) {
	redis.SetLogger(quiet{})
	flag.Parse()
	// Histories wait more than they work.
	_ = flag.Set("test.parallel", "8") // the flag exists
	code := m.Run()
	if code == 0 {
		if err := leaks(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// leaks returns the goroutines that are left. An idle subscription takes some seconds to close.
func leaks() (err error) {
	for end := time.Now().Add(15 * time.Second); time.Now().Before(end); {
		if err = goleak.Find(); err == nil {
			return nil
		}
	}
	return err
}

func must1[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
