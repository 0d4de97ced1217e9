package main

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
)

const (
	// quiet is the time without a command in flight after which the clean-up counts as done.
	quiet = 100 * time.Millisecond

	// longestSettling limits settle. It is enough for a release that gets no reply, and for its
	// second send.
	longestSettling = 2*time.Second + quiet
)

// settle waits for the clean-up that a Locker does in the background. The end of the process would
// interrupt it. The first command of the clean-up may not have begun yet, so the time before settle does
// not count as quiet.
//
// redlatch.Drain does not serve here. It also waits until this process would hand on a key that it keeps:
// so `run -min-hold 10s` would end 10 s after its command, though Redis ends such a key by itself. And it
// waits for nodes that do not answer.
func (c *connection) settle() {
	end := time.Now().Add(longestSettling)
	for last := time.Now(); time.Since(last) < quiet && time.Now().Before(end); time.Sleep(quiet / 20) {
		if slices.ContainsFunc(c.nodes, (*traffic).busy) {
			last = time.Now()
		}
	}
}

// release releases lock, and keeps others out for the time after. On a quorum, Unlock does not wait
// for slow nodes, so release does.
func (c *connection) release(lock *redlatch.Lock, after time.Duration) error {
	before := make([]int, len(c.nodes))
	for i, node := range c.nodes { // an acquire may still be under way on a slow node
		before[i] = node.due()
	}
	err := lock.UnlockAfter(context.Background(), after)
	if !c.quorum || errors.Is(err, redlatch.ErrLost) {
		return err
	}
	end := time.Now().Add(longestSettling)
	for i, node := range c.nodes {
		for node.alive() && (node.busy() || node.done() <= before[i]) && time.Now().Before(end) {
			time.Sleep(time.Millisecond)
		}
	}
	return err
}

// traffic is a hook of the client of one node. It sees the commands that the node is sent.
type traffic struct {
	mu      sync.Mutex // guards the fields below
	pending int        // commands and pipelines in flight
	running int        // scripts in flight
	again   int        // scripts that the node has refused to run, and that are sent once more
	scripts int        // that the node has run
	answers bool       // the node has answered since a connection to it failed
}

// watch sees the commands of client. Those of redlatch go by the clients of the servers of a Cluster.
func (t *traffic) watch(client redis.UniversalClient) {
	if cluster, is := client.(*redis.ClusterClient); is {
		cluster.OnNewNode(func(server *redis.Client) { server.AddHook(t) })
		return
	}
	client.AddHook(t)
}

func (t *traffic) begin(cmds ...redis.Cmder) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pending++
	for _, cmd := range cmds {
		if isScript(cmd) {
			t.running++
			t.again = max(t.again-1, 0)
		}
	}
}

func isScript(cmd redis.Cmder) bool { return strings.HasPrefix(cmd.Name(), "eval") }

// tooLate reports whether a script only answered that it came too late. It is sent once more then.
func tooLate(cmd redis.Cmder) bool {
	reply, ok := cmd.(interface{ Val() any })
	if !ok {
		return false
	}
	fields, _ := reply.Val().([]any)
	return len(fields) > 0 && fields[0] == "late"
}

func (t *traffic) end(cmds ...redis.Cmder) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pending--
	for _, cmd := range cmds {
		err := cmd.Err()
		t.answers = t.answers || err == nil || errors.As(err, new(redis.Error))
		if !isScript(cmd) {
			continue
		}
		t.running--
		switch {
		case redis.HasErrorPrefix(err, "NOSCRIPT") || tooLate(cmd):
			t.again++
		case err == nil:
			t.scripts++
		}
	}
}

// alive reports whether the node may have been sent a script. The first command on a connection is
// a greeting, and until the node answers it, no other command is sent.
func (t *traffic) alive() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.answers
}

// busy reports whether the node has something to carry out.
func (t *traffic) busy() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.answers && t.pending > 0
}

// done returns how many scripts the node has run.
func (t *traffic) done() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.scripts
}

// due returns how many scripts the node will have run once those that were sent are done.
func (t *traffic) due() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.scripts + t.running + t.again
}

// DialHook notices that a connection fails.
func (t *traffic) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		if err != nil {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.answers = false
		}
		return conn, err
	}
}

// ProcessHook counts a command.
func (t *traffic) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		t.begin(cmd)
		err := next(ctx, cmd)
		cmd.SetErr(err) // as the client does after its hooks
		t.end(cmd)
		return err
	}
}

// ProcessPipelineHook counts a pipeline.
func (t *traffic) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		t.begin(cmds...)
		defer t.end(cmds...)
		return next(ctx, cmds)
	}
}
