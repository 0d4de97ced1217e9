package node

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/rediserr"
)

// A batch is what a courier carries at once. It is also the context of its commands. It ends when
// nine tenths of the time of its calls have passed, so that go-redis stops waiting for a connection,
// and says why.
type batch struct {
	context.Context // that of the first call that has one, for its values
	items           []item
	only            [1]item       // the array of items if there is only one
	deadline        time.Time     // zero: it has none
	done            chan struct{} // nil: it does not end

	// Guarded by Node.mu.
	left, end  clock.Mono // when it left, and the last deadline of its calls
	ended      bool       // done is closed
	live       int        // calls that have neither ended nor left it
	writtenOff bool
}

// An item is a call in one batch. Only its courier uses the commands. The courier uses no other
// field of the call without Node.mu, since the call may have left the batch.
type item struct {
	call      *Call
	use       uint64 // of the call. A later use of the call is not for this item
	cmd, then *redis.Cmd

	key, redirect string        // of the call
	server        *redis.Client // that the node of the whole has found for it
}

// asks reports whether the server has the key only for those who ask: its slot is on the way there.
func (i *item) asks() bool { return strings.HasPrefix(i.redirect, "ASK") }

func (b *batch) Deadline() (time.Time, bool) { return b.deadline, !b.deadline.IsZero() }
func (b *batch) Done() <-chan struct{}       { return b.done }

func (b *batch) Err() error {
	select {
	case <-b.done:
		return context.Canceled
	default:
		return nil
	}
}

func (b *batch) endLocked() {
	if !b.ended && b.done != nil {
		b.ended = true
		close(b.done)
	}
}

// once is a command that go-redis must not resend, since the node must know whether an earlier send
// may have been carried out.
type once struct{ *redis.Cmd }

func (once) NoRetry() bool { return true }

// courier carries calls. It ends when the mailbox is empty, when there are more couriers than are of
// use, or when a batch that was written off has returned.
func (n *Node) courier() {
	n.mu.Lock()
	for b := n.loadLocked(); b != nil; b = n.loadLocked() {
		n.unlock()
		n.carry(b)
		n.mu.Lock()
		goesOn := n.landLocked(b)
		alone := n.busy == 1 && len(b.items) == 1
		n.unlock() // which calls the receivers
		if !goesOn {
			return
		}
		if !alone { // else this would only wake another processor
			runtime.Gosched() // so that the next calls of the receivers leave together
		}
		n.mu.Lock()
		if n.busy > n.mostLocked() { // others carry what has come
			break
		}
	}
	n.busy--
	n.unlock()
}

// landLocked handles the outcome of b. It reports whether its courier goes on: one that was written
// off ends.
func (n *Node) landLocked(b *batch) (goesOn bool) {
	gaveUp := b.ended && !b.writtenOff
	b.endLocked()
	now := clock.MonoNow()
	for i := range b.items {
		n.arrivedLocked(&b.items[i], gaveUp, now)
	}
	if b == n.connects {
		n.connects = nil
	}
	if n.answered == now {
		n.width.observe(now, now.Sub(b.left), len(b.items))
	}
	if n.longWayLocked() {
		n.surveyLocked(now.Sub(b.left), now)
	}
	if b.writtenOff {
		n.writtenOff--
		n.startLocked()
	}
	return !b.writtenOff
}

// loadLocked takes calls out of the mailbox for one batch. It returns nil if there is none to send.
func (n *Node) loadLocked() *batch {
	if n.mail.first() == nil {
		return nil
	}
	b := &batch{Context: context.Background(), done: make(chan struct{})}
	b.items = b.only[:0]
	now, words := clock.MonoNow(), 0
	for c := n.mail.first(); c != nil && len(b.items) < n.together; c = n.mail.first() {
		if len(b.items) > 0 && (n.silent && !n.illness.ill || c.Then != nil || b.items[0].call.Then != nil) {
			break
		}
		c.leave()
		if c.hopeless(now) {
			continue
		}
		if n.movedLocked(c) {
			n.handLocked(c, n.whole)
			continue
		}
		if c.batch = b; n.route == nil {
			n.stampLocked(c, now)
			c.sent = true
		}
		if n.noEvalSHA {
			c.sendSource()
		}
		words += len(c.words) + len(c.Then)
		if b.Context == context.Background() { // renewals have that
			b.Context = c.ctx //nolint:fatcontext // of the first call that has one
		}
		if len(b.items) == len(b.only) { // make room for the others at once
			b.items = slices.Grow(b.items, min(1+n.mail.length(), n.together-1))
		}
		b.items = append(b.items, item{call: c, use: c.uses, key: c.key(), redirect: c.redirect})
		b.end = max(b.end, c.deadline)
	}
	if len(b.items) == 0 {
		return nil
	}
	b.write(words)
	b.deadline, b.live, b.left = b.end.Deadline(), len(b.items), now
	n.startLocked()
	return b
}

// write makes the commands, which have so many words. They get copies, since hooks of the client may
// write into them.
func (b *batch) write(words int) {
	copies := make([]any, 0, words)
	command := func(words []any) *redis.Cmd {
		begin := len(copies)
		copies = append(copies, words...)
		return newCmd(b, copies[begin:len(copies):len(copies)])
	}
	for i := range b.items {
		p := &b.items[i]
		if p.cmd = command(p.call.words); p.call.Then != nil {
			p.then = command(p.call.Then)
		}
	}
}

// newCmd returns a command. It says how far apart its keys are. Otherwise the client of a Cluster asks a
// server for that, which it picks at random, and waits for one that is silent.
func newCmd(b *batch, words []any) *redis.Cmd {
	cmd := redis.NewCmd(b, words...)
	cmd.SetStepCount(1)
	return cmd
}

// carry sends the commands of b and waits for the replies.
func (n *Node) carry(b *batch) {
	defer func() {
		if value := recover(); value != nil { // also that of panic(nil)
			n.survive(b, value)
		}
	}()
	n.exchange(b)
}

// exchange calls the client, which calls hooks of its user.
func (n *Node) exchange(b *batch) {
	i := &b.items[0]
	switch {
	case n.route != nil:
		n.locate(b, i)
	case len(b.items) > 1, i.then != nil, i.asks():
		n.carryTogether(b)
	default:
		if err := n.client.Process(b, once{i.cmd}); err != nil {
			i.cmd.SetErr(err)
		}
		if i.cmd.Err() == nil && i.cmd.Val() == nil { // with a deferred pipeline, Err waits for the reply
			i.cmd.SetErr(errNoReply)
		}
	}
}

// carryTogether sends all commands of b as one pipeline.
func (n *Node) carryTogether(b *batch) {
	pipe := n.client.Pipeline()
	for i := range b.items {
		if b.items[i].asks() {
			_ = pipe.Process(b, once{newCmd(b, []any{"asking"})})
		}
		_ = pipe.Process(b, once{b.items[i].cmd})
		if then := b.items[i].then; then != nil {
			_ = pipe.Process(b, once{then})
		}
	}
	_, err := pipe.Exec(b)
	var lacking []*redis.Cmd // since a hook of the client failed, or the connection was refused while it opened
	commands := 0
	for _, i := range b.items {
		for _, cmd := range []*redis.Cmd{i.cmd, i.then} {
			if cmd == nil {
				continue
			}
			if commands++; cmd.Err() == nil && cmd.Val() == nil {
				lacking = append(lacking, cmd)
			}
		}
	}
	if err == nil || rediserr.Answered(err) && len(lacking) < commands { // it answers another command
		err = errNoReply
	}
	for _, cmd := range lacking {
		cmd.SetErr(err)
	}
}

var errNoReply = errors.New("the client returned no reply")
