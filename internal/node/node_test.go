package node

import (
	"bufio"
	"bytes"
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

// A batch is what a client sends at once: the words of each command.
type batch [][]string

// answered returns a node whose client has connections to nothing. answer gets each batch and decides its
// outcome. The commands of a batch have the reply "OK" unless answer returns an error. An [answer] is the
// reply to all of them, [answers] has one reply for each, and any other error breaks the connection.
func answered(t *testing.T, answer func(sent batch) error) *Node {
	t.Helper()
	client := redis.NewClient(&redis.Options{
		Addr:                     "127.0.0.1:1", // a host name would be looked up
		ReadTimeout:              -1,
		Dialer:                   func(context.Context, string, string) (net.Conn, error) { return &fakeConn{answer: answer}, nil },
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() { _ = client.Close() })
	return New(client)
}

// answeredBy returns a node whose client fails with each of errs, one for each send, and then succeeds.
func answeredBy(t *testing.T, errs ...error) *Node {
	t.Helper()
	left := make(chan error, len(errs))
	for _, err := range errs {
		left <- err
	}
	return answered(t, func(batch) error {
		select {
		case err := <-left:
			return err
		default:
			return nil
		}
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
		default:
			c.sent = append(c.sent, words)
		}
	}
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

// hook puts the gate in front of what a client sends.
func (g *gate) hook() hook {
	return func(_ context.Context, cmds []redis.Cmder, next func() error) error {
		var sent batch
		for _, cmd := range cmds {
			sent = append(sent, said(cmd))
		}
		g.pass(sent)
		return next()
	}
}

// said returns the words of a command. It follows pointers to words.
func said(cmd redis.Cmder) (words []string) {
	for _, word := range cmd.Args() {
		words = append(words, fmt.Sprint(reflect.Indirect(reflect.ValueOf(word))))
	}
	return words
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
func (g *gate) occupy(t *testing.T, n *Node) {
	t.Helper()
	for range n.most {
		post(t.Context(), n, within(Command("ping"), time.Hour))
		<-g.sent
	}
}

// within sets the timeout of a call.
func within(c *Call, timeout time.Duration) *Call {
	c.Timeout = timeout
	return c
}

// posted is a call and its report.
type posted struct {
	*Call
	report chan *Call
}

func post(ctx context.Context, n *Node, c *Call) *posted {
	p := &posted{c, make(chan *Call, 1)}
	c.Report = p.report
	n.Post(ctx, c)
	return p
}

// wait returns the reply once it was reported.
func (p *posted) wait(t *testing.T) Reply {
	t.Helper()
	select {
	case <-p.report:
		return p.Reply()
	case <-time.After(limit):
		require.Fail(t, "no report")
		return Reply{}
	}
}

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
		return n.busy == 0 && n.lost == 0 && n.mail.first() == nil && n.timed.first() == nil && len(n.lanes) == 0
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
