package main

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
)

const (
	// quiet is the time without a command in flight after which the clean-up counts as done.
	quiet = 100 * time.Millisecond

	// longestSettling limits settle. It is enough for a release that gets no reply, and for its second send.
	longestSettling = 2*time.Second + quiet
)

// settle waits for the clean-up that a Locker does in the background. The end of the process would interrupt it. The
// first command of the clean-up may not have begun yet, so the time before settle does not count as quiet.
func (c *connection) settle() {
	end := time.Now().Add(longestSettling)
	for last := time.Now(); time.Since(last) < quiet && time.Now().Before(end); time.Sleep(quiet / 20) {
		if slices.ContainsFunc(c.nodes, (*traffic).busy) {
			last = time.Now()
		}
	}
}

// release releases lock. On a quorum, Unlock does not wait for slow nodes, so release does.
func (c *connection) release(lock *redlatch.Lock) error {
	sent := make([]int, len(c.nodes))
	for i, node := range c.nodes {
		sent[i] = node.commands()
	}
	err := lock.Unlock(context.Background())
	if !c.quorum || errors.Is(err, redlatch.ErrLost) {
		return err
	}
	end := time.Now().Add(longestSettling)
	for i, node := range c.nodes {
		for !node.hasDone(sent[i]+1) && time.Now().Before(end) {
			time.Sleep(time.Millisecond)
		}
	}
	return err
}

// traffic is a hook of the client of one node. It counts commands and pipelines.
type traffic struct {
	mu      sync.Mutex // guards the fields below
	sent    int
	pending int  // in flight
	answers bool // the node has answered since a connection to it failed
}

func (t *traffic) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sent++
	t.pending++
}

func (t *traffic) end(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pending--
	t.answers = t.answers || err == nil || errors.As(err, new(redis.Error))
}

// busy reports whether the node has something to carry out. The first command on a connection is a greeting. Until a
// node answers one, it gets no other command, so there is nothing to clean up.
func (t *traffic) busy() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.answers && t.pending > 0
}

// hasDone reports whether the node has carried out the n-th command and those before it, or will get none.
func (t *traffic) hasDone(n int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.answers || t.sent >= n && t.pending == 0
}

// commands returns how many commands the node was sent.
func (t *traffic) commands() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sent
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
	return func(ctx context.Context, cmd redis.Cmder) (err error) {
		t.begin()
		defer func() { t.end(err) }()
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook counts a pipeline.
func (t *traffic) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) (err error) {
		t.begin()
		defer func() { t.end(err) }()
		return next(ctx, cmds)
	}
}
