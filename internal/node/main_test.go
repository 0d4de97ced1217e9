package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/rediserr"
	"github.com/redlatch/redlatch/internal/testing/redistest"
)

func TestMain(m *testing.M) {
	misused = func(what string) { panic(what) }
	redistest.Main(m)
}

// limit is how long a test waits for an event that will come. It is also the timeout of a call that
// has none of its own.
const limit = time.Minute

// eventually waits for an event.
func eventually(t *testing.T, what string, event func() bool) {
	t.Helper()
	for begin := time.Now(); !event(); <-time.After(time.Millisecond) {
		require.Less(t, time.Since(begin), limit, "timed out waiting until %s", what)
	}
}

// A hook is a client hook that treats a single command like a batch of one.
type hook func(ctx context.Context, cmds []redis.Cmder, next func() error) error

func (h hook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return h(ctx, []redis.Cmder{cmd}, func() error { return next(ctx, cmd) })
	}
}

func (h hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return h(ctx, cmds, func() error { return next(ctx, cmds) })
	}
}

// Commands are what a client sends at once: the words of each command.
type commands [][]string

// said returns the words of commands. It follows pointers to words.
func said(cmds []redis.Cmder) (b commands) {
	for _, cmd := range cmds {
		var words []string
		for _, word := range cmd.Args() {
			words = append(words, fmt.Sprint(reflect.Indirect(reflect.ValueOf(word))))
		}
		b = append(b, words)
	}
	return b
}

// answer is an error reply of Redis.
type answer string

func (a answer) Error() string { return string(a) }
func (answer) RedisError()     {}

// replies has a reply for each command of a batch: an error or a value.
type replies []any

func (r replies) Error() string { return fmt.Sprint([]any(r)...) }

// A fake is a server without a connection. It gets each batch and decides its outcome. nil replies
// "OK" to each command, an [answer] refuses each, [replies] has one reply for each, and any other
// error breaks the connection. It overwrites all words first, as hooks of a client may do.
type fake func(sent commands) error

// hook has the fake answer in place of a server. At the end of the test it checks that the words of
// the commands have not changed since, which hooks of a client may keep.
func (f fake) hook(t *testing.T) hook {
	var mu sync.Mutex // guards the variables below
	var kept []redis.Cmder
	t.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		for _, cmd := range kept {
			for _, word := range cmd.Args() {
				require.Equal(t, overwritten, word)
			}
		}
	})
	return func(_ context.Context, cmds []redis.Cmder, _ func() error) error {
		sent := said(cmds)
		if opensAConnection(sent) { // a fake has none
			cmds[0].SetErr(io.EOF)
			return io.EOF
		}
		mu.Lock()
		kept = append(kept, cmds...)
		for _, cmd := range cmds {
			for i := range cmd.Args() {
				cmd.Args()[i] = overwritten
			}
		}
		mu.Unlock()
		err := f(sent)
		var each replies
		if !errors.As(err, &each) {
			each = slices.Repeat(replies{cmp.Or[any](err, "OK")}, len(cmds))
		}
		for i, cmd := range cmds {
			if refused, ok := each[i].(error); ok {
				cmd.SetErr(refused)
			} else {
				cmd.SetErr(nil)
				cmd.(interface{ SetVal(any) }).SetVal(each[i])
			}
		}
		return cmds[0].Err()
	}
}

// overwritten is what a fake has written over each word.
const overwritten = "overwritten"

// opensAConnection reports whether the only purpose of a batch is that.
func opensAConnection(sent commands) bool { return len(sent[0]) > 1 && sent[0][1] == "return 0" }

// connected is how many connections a client of a fake has.
const connected = 50

// answered returns a node of a fake. The hooks run before the fake answers.
func answered(t *testing.T, f fake, hooks ...redis.Hook) *Node {
	t.Helper()
	client := redis.NewClient(&redis.Options{
		Addr:     "192.0.2.1:1", // go-redis v9.22 would look up a name
		PoolSize: connected, PipelinePoolSize: -1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}, // it has a ticker
	})
	t.Cleanup(func() { _ = client.Close() })
	for _, h := range append(hooks, f.hook(t)) {
		client.AddHook(h)
	}
	return New(client)
}

// A gate holds back what a client sends until it is opened.
type gate struct {
	sent   chan commands // as it came; it has room for all
	opened chan struct{}
	open   func() // may be called any number of times
}

func newGate(t *testing.T) *gate {
	g := &gate{sent: make(chan commands, 1000), opened: make(chan struct{})}
	g.open = sync.OnceFunc(func() { close(g.opened) })
	t.Cleanup(g.open)
	return g
}

func (g *gate) pass(sent commands) error {
	g.sent <- sent
	<-g.opened
	return nil
}

// gated returns a node of a fake that succeeds with everything, once the gate is open.
func gated(t *testing.T) (*Node, *gate) {
	t.Helper()
	g := newGate(t)
	return answered(t, g.pass), g
}

// Command returns a call of a plain command. It must not be used after it was posted.
func Command(words ...any) *Call {
	c := new(Call)
	c.words = append(make([]any, 0, len(words)), words...)
	return c
}

var (
	increase = scriptOf("return redis.call('INCRBY', KEYS[1], ARGV[1])")
	fail     = scriptOf("return redis.call('LPUSH', KEYS[1], 'x')")
)

// scriptOf returns a script of the tests.
func scriptOf(source string) *Script { return NewScript(source, redis.NewScript(source).Hash()) }

// within sets the timeout of a call.
func within(c *Call, timeout time.Duration) *Call {
	c.Timeout = timeout
	return c
}

// waits adds a second command to a call.
func waits(c *Call) *Call {
	c.Key, c.Then = "foo", []any{"wait", 1, 100}
	return c
}

// reply returns a channel that gets the reply to c.
func reply(c *Call) <-chan Reply {
	got := make(chan Reply, 1)
	c.Timeout = cmp.Or(c.Timeout, limit)
	c.Done = func(r Reply) { got <- r }
	return got
}

// post posts a call and returns a channel that gets its reply.
func post(n *Node, c *Call) <-chan Reply {
	got := reply(c)
	n.Post(context.Background(), c)
	return got
}

// do posts a call and waits for its reply.
func do(n *Node, c *Call) Reply { return <-post(n, c) }

// together posts calls that leave as one batch.
func together(n *Node, calls ...*Call) (got []<-chan Reply) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.busy += couriers // so that no courier starts before all calls are in the mailbox
	for _, c := range calls {
		got = append(got, reply(c))
		c.ctx = context.Background()
		n.postLocked(c, clock.MonoNow())
	}
	n.busy -= couriers
	n.startLocked()
	return got
}

// requireIdle waits until n has nothing left of its calls.
func requireIdle(t *testing.T, n *Node) {
	t.Helper()
	eventually(t, "the node is idle", func() bool { return idle(n) })
}

func idle(n *Node) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.busy == 0 && n.writtenOff == 0 && n.mail.first() == nil && len(n.looks) == 0 && n.ended.first == nil
}

// requireOK checks that a call succeeded. resent says whether an earlier send may have been carried
// out.
func requireOK(t *testing.T, resent bool, r Reply) {
	t.Helper()
	require.NoError(t, r.Err)
	require.Equal(t, "OK", r.Value)
	require.Equal(t, resent, r.Resent)
}

// isNotDone reports whether err is marked as that of a call that was not carried out.
func isNotDone(err error) bool { return errors.As(err, new(*rediserr.NotDone)) }

func silent(n *Node) bool {
	is, _ := n.Health()
	return is
}
