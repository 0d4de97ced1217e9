package node

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// limit is how long a test waits for an event that will come.
const limit = 20 * time.Second

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

// A keeper is a hook that keeps the commands that it sees, like a hook that logs from a goroutine of its own.
type keeper struct {
	mu   sync.Mutex // guards the fields below
	ctxs []context.Context
	cmds []redis.Cmder
	said [][]string // the words of the commands at that time
}

func (k *keeper) hook() hook {
	return func(ctx context.Context, cmds []redis.Cmder, next func() error) error {
		k.mu.Lock()
		k.ctxs = append(k.ctxs, ctx)
		for _, cmd := range cmds {
			k.cmds, k.said = append(k.cmds, cmd), append(k.said, said(cmd))
		}
		k.mu.Unlock()
		return next()
	}
}

// requireUnchanged checks that the words of the commands have not changed, and that every ctx has ended.
func (k *keeper) requireUnchanged(t *testing.T) {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	require.NotEmpty(t, k.cmds)
	for i, cmd := range k.cmds {
		require.Equal(t, k.said[i], said(cmd))
	}
	for _, ctx := range k.ctxs {
		<-ctx.Done()
		require.ErrorIs(t, ctx.Err(), context.Canceled)
	}
}

// said returns the words of a command. It follows pointers to words.
func said(cmd redis.Cmder) (words []string) {
	for _, word := range cmd.Args() {
		words = append(words, fmt.Sprint(reflect.Indirect(reflect.ValueOf(word))))
	}
	return words
}

// A batch is what a client sends at once: the words of each command.
type batch [][]string

// connected is more connections than a test in a bubble uses. The clock of a bubble stops while go-redis waits for one.
const connected = 100

// answered returns a node whose client has connections to nothing. answer gets each batch and decides its
// outcome. The commands of a batch have the reply "OK" unless answer returns an error. An [answer] is the
// reply to all of them, [answers] has one reply for each, and any other error breaks the connection.
func answered(t *testing.T, answer func(sent batch) error) *Node {
	t.Helper()
	client := redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:1", ReadTimeout: -1, PoolSize: connected, // a host name would be looked up
		Dialer:                   dialer(func(_ string, sent batch) error { return answer(sent) }),
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() { _ = client.Close() })
	n := New(client)
	n.mostLost = connected / 2
	return n
}

// clustered returns a node whose client is that of a cluster of nothing. The port, such as ":1", says which server is asked.
func clustered(t *testing.T, slots func() ([]redis.ClusterSlot, error), answer func(port string, sent batch) error) *Node {
	t.Helper()
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{"127.0.0.1:1"}, ReadTimeout: -1, PoolSize: connected, Dialer: dialer(answer),
		ClusterSlots:             func(context.Context) ([]redis.ClusterSlot, error) { return slots() },
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() { _ = client.Close() })
	return New(client)
}

func dialer(answer func(port string, sent batch) error) func(context.Context, string, string) (net.Conn, error) {
	return func(_ context.Context, _, addr string) (net.Conn, error) {
		return &fakeConn{answer: func(sent batch) error { return answer(addr[strings.LastIndex(addr, ":"):], sent) }}, nil
	}
}

// answeredBy returns a node whose client fails with each of errs, one for each send, and then succeeds.
func answeredBy(t *testing.T, errs ...error) *Node {
	t.Helper()
	var sends atomic.Int64
	return answered(t, func(batch) error {
		if i := int(sends.Add(1)); i <= len(errs) {
			return errs[i-1]
		}
		return nil
	})
}

// A fakeConn is a connection to nothing. It refuses the commands of the handshake, so the client
// continues without it.
type fakeConn struct {
	net.Conn
	answer   func(batch) error
	sent     batch        // that was written and not answered
	replies  bytes.Buffer // that were not read
	deadline time.Time    // of a Read
	broken   error
}

func (c *fakeConn) Write(b []byte) (int, error) {
	for text := bufio.NewReader(bytes.NewReader(b)); ; {
		words, err := readWords(text)
		switch {
		case err != nil:
			return len(b), nil //nolint:nilerr // the error is the end of b
		case words[0] == "hello" || words[0] == "client":
			c.replies.WriteString("-ERR unknown command\r\n")
		case words[0] == "command": // a client of a cluster asks for them
			c.replies.WriteString("*2\r\n" + commandInfo("eval") + commandInfo("evalsha"))
		default:
			c.sent = append(c.sent, words)
		}
	}
}

func commandInfo(name string) string {
	return fmt.Sprintf("*6\r\n$%d\r\n%s\r\n:-3\r\n*0\r\n:0\r\n:0\r\n:0\r\n", len(name), name)
}

// readWords reads a command.
func readWords(text *bufio.Reader) (words []string, err error) {
	var count, length int
	if _, err = fmt.Fscanf(text, "*%d\r\n", &count); err != nil {
		return nil, err
	}
	for range count {
		if _, err = fmt.Fscanf(text, "$%d\r\n", &length); err != nil {
			return nil, err
		}
		word := make([]byte, length+len("\r\n"))
		if _, err = io.ReadFull(text, word); err != nil {
			return nil, err
		}
		words = append(words, string(word[:length]))
	}
	return words, nil
}

func (c *fakeConn) Read(b []byte) (int, error) {
	if c.replies.Len() == 0 {
		if err := c.ask(); err != nil {
			return 0, err
		}
	}
	return c.replies.Read(b)
}

// ask waits for the answer to what was sent.
func (c *fakeConn) ask() error {
	if c.broken != nil {
		return c.broken
	}
	var timeout <-chan time.Time
	if !c.deadline.IsZero() {
		timer := time.NewTimer(time.Until(c.deadline))
		defer timer.Stop()
		timeout = timer.C
	}
	answered := make(chan error, 1)
	sent := c.sent
	c.sent = nil
	go func() { answered <- c.answer(sent) }() // ends with the answer, even if nobody waits for it
	select {
	case err := <-answered:
		texts := slices.Repeat([]string{"+OK"}, len(sent))
		var one answer
		var each answers
		switch {
		case errors.As(err, &one):
			texts, err = slices.Repeat([]string{"-" + string(one)}, len(sent)), nil
		case errors.As(err, &each):
			texts, err = each, nil
		}
		if err == nil {
			c.replies.WriteString(strings.Join(texts, "\r\n") + "\r\n")
		}
		c.broken = err
		return err
	case <-timeout:
		c.broken = &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}
		return c.broken
	}
}

func (c *fakeConn) SetDeadline(at time.Time) error     { c.deadline = at; return nil }
func (c *fakeConn) SetReadDeadline(at time.Time) error { c.deadline = at; return nil }
func (c *fakeConn) SetWriteDeadline(time.Time) error   { return nil }
func (c *fakeConn) RemoteAddr() net.Addr               { return &net.TCPAddr{} }
func (c *fakeConn) Close() error                       { return nil }

// A gate holds back what a client sends until it is opened.
type gate struct {
	sent   chan batch // as it came; it has room for all
	opened chan struct{}
	open   func() // may be called any number of times
}

func newGate() *gate {
	g := &gate{sent: make(chan batch, 100_000), opened: make(chan struct{})}
	g.open = sync.OnceFunc(func() { close(g.opened) })
	return g
}

func (g *gate) pass(sent batch) {
	g.sent <- sent
	<-g.opened
}

// gated returns a node whose client succeeds with everything, once the gate is open.
func gated(t *testing.T) (*Node, *gate) {
	t.Helper()
	g := newGate()
	t.Cleanup(g.open)
	return answered(t, func(sent batch) error {
		g.pass(sent)
		return nil
	}), g
}

// occupy makes every courier wait at the gate, so that later calls wait in the mailbox.
func (g *gate) occupy(n *Node) {
	for range n.most {
		post(n, within(Command("ping"), time.Hour))
		<-g.sent
	}
}

// within sets the timeout of a call.
func within(c *Call, timeout time.Duration) *Call {
	c.Timeout = timeout
	return c
}

// post posts a call, whose timeout is limit unless it has one. The channel gets its reply. A second reply panics.
func post(n *Node, c *Call) <-chan Reply {
	reply, called := make(chan Reply, 1), new(atomic.Bool)
	c.Timeout = cmp.Or(c.Timeout, limit)
	c.Done = func(r Reply) {
		if called.Swap(true) {
			panic("Done was called twice")
		}
		reply <- r
	}
	n.Post(context.Background(), c)
	return reply
}

// do posts a call and waits for its reply.
func do(n *Node, c *Call) Reply { return <-post(n, c) }

// isNotDone reports whether err is marked as that of a call that was not carried out.
func isNotDone(err error) bool { return errors.As(err, new(*NotDone)) }

func (n *Node) couriersAtWork() (busy, lost int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.busy, n.lost
}

// requireIdle waits until n has nothing left of its calls.
func requireIdle(t *testing.T, n *Node) {
	t.Helper()
	eventually(t, "the node is idle", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.busy == 0 && n.lost == 0 && len(n.mail) == 0 && len(n.timed) == 0 && n.ended == nil
	})
}

// requireOK checks that a call succeeded. resent says whether an earlier send may have been carried out.
func requireOK(t *testing.T, resent bool, r Reply) {
	t.Helper()
	require.NoError(t, r.Err)
	require.Equal(t, "OK", r.Value)
	require.Equal(t, resent, r.Resent)
}

// answer is an error reply of Redis.
type answer string

func (a answer) Error() string { return string(a) }
func (answer) RedisError()     {}

// answers has a reply for each command of a batch, as Redis writes it.
type answers []string

func (a answers) Error() string { return strings.Join(a, ", ") }

// Command returns a call of a plain command. It must not be used after it was posted.
func Command(words ...any) *Call {
	c := calls.Get().(*Call)
	c.words = append(make([]any, 0, len(words)), words...)
	return c
}

func silent(n *Node) bool {
	is, _ := n.Health()
	return is
}

func trouble(n *Node) error {
	_, err := n.Health()
	return err
}
