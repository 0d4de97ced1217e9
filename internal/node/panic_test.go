package node

import (
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/rediserr"
	"github.com/redlatch/redlatch/internal/testing/redistest"
)

const secret = "owner/6f1c2f9e-9b0c-4a53-8f0e-1d2c3b4a5968"

// nilPanic is the text of a panic(nil), by the version of Go.
var nilPanic = new(runtime.PanicNilError).Error()

// endings are ways in which a hook panics, by what the error says. They are
// functions of this package, so the place is the line of the test.
var endings = map[string]func(){
	"the client panicked: boom twice (at node.":              func() { panic("boom\n twice") },
	"the client panicked: EOF (at node.":                     func() { panic(io.EOF) },
	"the client panicked: runtime error: index out of range": func() { _ = []int{}[len(secret)] },
	"the client panicked: " + nilPanic:                       func() { panic(nil) },
	"the client panicked: bad … (at node.":                   func() { panic(fmt.Sprint("bad ", secret)) },
}

// TestPanicOfTheClientIsTheOutcomeOfItsCalls: the call is sent again, as after any unknown error,
// and knows that it may have been carried out. The courier goes on, or another one takes its place,
// so the next call needs nothing else.
func TestPanicOfTheClientIsTheOutcomeOfItsCalls(t *testing.T) {
	for text, end := range endings {
		for name, c := range map[string]struct {
			calls  func() []*Call
			sends  bool          // the server gets the commands before the hook ends
			hangs  time.Duration // before that
			lasts  int64         // how often the hook ends
			failed bool
		}{
			"one call":             {calls: oneCall, lasts: 2},
			"a batch":              {calls: twoCalls, sends: true, lasts: 1},
			"two commands":         {calls: pairOfCommands, sends: true, lasts: 1},
			"for ever":             {calls: twoCalls, lasts: 1e6, failed: true},
			"a trip that is over":  {calls: oneCall, hangs: 3 * time.Second, lasts: 1, failed: true},
			"many trips, all over": {calls: twoCalls, hangs: 3 * time.Second, lasts: 3, failed: true},
		} {
			t.Run(text+", "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var left atomic.Int64
					left.Store(c.lasts)
					n := answered(t, func(commands) error { return nil }, hook(func(_ context.Context, _ []redis.Cmder, next func() error) error {
						if left.Add(-1) < 0 {
							return next()
						}
						if c.sends {
							_ = next()
						}
						time.Sleep(c.hangs)
						end()
						return nil
					}))
					var troubles []string
					n.Trouble = func(err error) { troubles = append(troubles, err.Error()) }
					for _, reply := range together(n, c.calls()...) {
						if r := <-reply; c.failed {
							require.ErrorAs(t, r.Err, new(*rediserr.NoReply))
							require.False(t, isNotDone(r.Err))
						} else {
							requireOK(t, true, r)
						}
					}
					if c.hangs == 0 {
						require.True(t, strings.HasPrefix(troubles[0], text), troubles[0])
						require.NotContains(t, strings.Join(troubles, ""), secret)
					}
					time.Sleep(time.Minute)
					left.Store(0)
					requireOK(t, false, do(n, Command("set", secret)))
					requireIdle(t, n)
				})
			})
		}
	}
}

func oneCall() []*Call { return []*Call{within(Command("set", secret), time.Second)} }

func twoCalls() []*Call { return append(oneCall(), oneCall()...) }

func pairOfCommands() []*Call { return []*Call{waits(within(Command("set", secret), time.Second))} }

// A breaker is a Limiter that panics.
type breaker struct{ allow, report bool }

func (b breaker) Allow() error {
	if b.allow {
		panic("allow")
	}
	return nil
}

func (b breaker) ReportResult(error) {
	if b.report {
		panic("report")
	}
}

// TestWhateverOfTheClientPanicsIsNamed: also what go-redis calls on its way to a connection.
func TestWhateverOfTheClientPanicsIsNamed(t *testing.T) {
	t.Parallel()
	for text, set := range map[string]func(o *redis.Options){
		"panicked: allow":   func(o *redis.Options) { o.Limiter = breaker{allow: true} },
		"panicked: report":  func(o *redis.Options) { o.Limiter = breaker{report: true} },
		"panicked: connect": func(o *redis.Options) { o.OnConnect = func(context.Context, *redis.Conn) error { panic("connect") } },
		"panicked: login": func(o *redis.Options) {
			o.CredentialsProviderContext = func(context.Context) (string, string, error) { panic("login") }
		},
		"panic": func(o *redis.Options) { // go-redis catches it
			o.Dialer = func(context.Context, string, string) (net.Conn, error) { panic("dial") }
		},
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			o := redistest.Shared(t).Options()
			set(o)
			n := New(dial(t, o))
			for _, reply := range together(n, within(Command("ping"), time.Second), within(Command("ping"), time.Second)) {
				require.ErrorContains(t, (<-reply).Err, text)
			}
			requireIdle(t, n)
		})
	}
}
