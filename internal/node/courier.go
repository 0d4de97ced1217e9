package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// A trip is what one courier carries at a time. It is the context of the commands too: it ends when all
// calls have, and so go-redis does not wait for a connection any longer.
type trip struct {
	context.Context // the only call's, for its values
	calls           []*Call
	only            [1]*Call // holds calls where there is one
	deadline        time.Time
	done            chan struct{} // closed when the trip is over, or written off

	// timeout is how long the client may write and read, where it can be told; zero: as its options say.
	timeout time.Duration

	// Guarded by Node.mu.
	live       int // calls that have not ended
	writtenOff bool
}

func (t *trip) Deadline() (time.Time, bool) { return t.deadline, true }
func (t *trip) Done() <-chan struct{}       { return t.done }

func (t *trip) Err() error {
	select {
	case <-t.done:
		return context.Canceled
	default:
		return nil
	}
}

// once is a command that go-redis must not send again by itself: the node has to know whether it may
// have been carried out before.
type once struct{ *redis.Cmd }

func (once) NoRetry() bool { return true }

// late is a reply for [Call.Late].
type late struct {
	tell  func(Reply)
	reply Reply
}

// deepen makes a new goroutine's stack as deep as go-redis needs it, while there is little on it to
// move. Growing by and by costs more than a tenth of what a command costs.
//
//go:noinline
func deepen(i int) byte {
	var room [6 << 10]byte
	return room[i%len(room)]
}

// courier carries what is in the mailbox. It ends when the mailbox is empty, or when it comes back from
// a trip that was written off.
func (n *Node) courier() {
	deepen(n.most)
	n.mu.Lock()
	for {
		t := n.loadLocked()
		if t == nil {
			n.busy--
			n.mu.Unlock()
			return
		}
		n.mu.Unlock()
		n.carry(t)
		n.mu.Lock()
		stragglers := n.landLocked(t)
		writtenOff := t.writtenOff
		if writtenOff {
			n.lost--
			n.dispatchLocked()
		}
		if writtenOff || stragglers != nil {
			n.mu.Unlock()
			for _, s := range stragglers {
				s.tell(s.reply)
			}
			if writtenOff {
				return
			}
			n.mu.Lock()
		}
	}
}

// loadLocked takes calls out of the mailbox for one trip, or returns nil.
func (n *Node) loadLocked() *trip {
	c := n.mail.first
	if c == nil {
		return nil
	}
	t := &trip{Context: context.Background(), done: make(chan struct{})}
	t.calls = t.only[:0]
	var end time.Duration
	most := longestBatch
	if n.pipelined == nil || n.silent {
		most = 1
	}
	for ; c != nil && len(t.calls) < most && (c.Beside == nil || len(t.calls) == 0); c = n.mail.first {
		n.mail.remove(c)
		c.place, c.trip = travelling, t
		t.calls = append(t.calls, c)
		end = max(end, c.deadline)
		if c.Beside != nil {
			break
		}
	}
	t.deadline = n.begin.Add(end)
	t.live = len(t.calls)
	if t.live == 1 {
		c = t.calls[0]
		t.Context = c.ctx
		if n.silent && n.pipelined != nil {
			t.timeout = c.patience()
		}
	}
	for _, c := range t.calls {
		c.sent = true
	}
	return t
}

// patience returns how long the client waits for c where the server is silent. Old connections may be
// dead while new ones work, so the first gets a quarter of the time, and leaves the rest to the next.
func (c *Call) patience() time.Duration {
	left := c.deadline - c.node.now()
	if !c.sent && c.Beside == nil && !c.Once {
		left /= 4
	}
	return max(left, time.Millisecond)
}

// carry sends the commands of t and waits for the replies.
func (n *Node) carry(t *trip) {
	client := n.client
	if t.timeout > 0 {
		client = n.pipelined.WithTimeout(t.timeout)
	}
	if len(t.calls) == 1 {
		c := t.calls[0]
		c.cmd = redis.NewCmd(t, c.words...)
		if c.Beside != nil {
			c.beside = redis.NewCmd(t, c.Beside...)
			carryBoth(t, client, c)
			return
		}
		process(t, client, c.cmd)
		return
	}
	pipe := client.Pipeline()
	for _, c := range t.calls {
		c.cmd = redis.NewCmd(t, c.words...)
		_ = pipe.Process(t, once{c.cmd})
	}
	_, err := pipe.Exec(t)
	for _, c := range t.calls {
		unanswered(c.cmd, err)
	}
}

// process runs one command, which has an error afterwards where there was no reply.
func process(t *trip, client redis.UniversalClient, cmd *redis.Cmd) {
	if err := client.Process(t, once{cmd}); err != nil {
		cmd.SetErr(err)
	}
	_ = cmd.Err() // of a deferred pipeline: it waits until the command is carried out
}

// unanswered gives cmd the error of its pipeline where it has neither a value nor an error of its own: a
// hook of the client failed.
func unanswered(cmd *redis.Cmd, err error) {
	if cmd.Err() != nil || cmd.Val() != nil {
		return
	}
	if err == nil || Answered(err) {
		err = errNoReply
	}
	cmd.SetErr(err)
}

var errNoReply = errors.New("the client has read no reply")

// carryBoth sends both commands of c. They share a connection where the client can say which.
func carryBoth(t *trip, client redis.UniversalClient, c *Call) {
	cluster, clustered := client.(*redis.ClusterClient)
	if clustered {
		master, err := cluster.MasterForKey(t, c.Key)
		if err != nil {
			c.cmd.SetErr(err)
			return
		}
		client = master
	}
	if _, one := client.(*redis.Client); !one {
		process(t, client, c.cmd)
		process(t, client, c.beside)
		return
	}
	pipe := client.Pipeline()
	_ = pipe.Process(t, once{c.cmd})
	_ = pipe.Process(t, once{c.beside})
	_, err := pipe.Exec(t)
	unanswered(c.cmd, err)
	unanswered(c.beside, err)
	if err := c.cmd.Err(); clustered && (redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK")) {
		cluster.ReloadState(t)
		c.cmd.SetErr(fmt.Errorf("the slot has moved: %v", err)) //nolint:errorlint // as an answer of Redis it would be final
	}
}

// landLocked does with the calls of t what their replies ask for. It returns what their Late is to be told.
func (n *Node) landLocked(t *trip) (stragglers []late) {
	if !t.writtenOff {
		close(t.done)
	}
	for _, c := range t.calls {
		c.trip, c.place = nil, landed
		r, v := n.judgeLocked(c)
		r.Overtaken = !c.Ordered || c.overtaken
		if c.Late != nil && (v == final && (c.over || c.left) || v == straying) {
			stragglers = append(stragglers, late{c.Late, r})
		}
		if c.over {
			n.leaveLaneLocked(c)
		} else if v == final {
			n.endLocked(c, r) // the last use of c: its caller may reuse it
		}
	}
	return stragglers
}

// A verdict is what the last send of a call means for it.
type verdict int

const (
	final    verdict = iota // the reply is that of the call
	again                   // the call is sent once more, or has ended
	straying                // likewise, and the send may be carried out yet
)

// judgeLocked reads what came of the last send of c.
func (n *Node) judgeLocked(c *Call) (Reply, verdict) {
	err := c.cmd.Err()
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	var failed error // of the second command
	if err == nil && c.beside != nil {
		if failed = c.beside.Err(); failed != nil && (!Answered(failed) || retryable(failed)) {
			err = failed
		}
	}
	answered := Answered(err)
	if err == nil || answered {
		n.heard, n.silent = n.now(), false
	}
	switch {
	case err == nil:
		n.trouble = nil
		r := Reply{Value: c.cmd.Val(), Resent: c.unclear}
		if c.beside != nil {
			r.Beside = &Reply{Value: c.beside.Val(), Err: Explain(failed)}
		}
		return r, final
	case c.script != nil && redis.HasErrorPrefix(err, "NOSCRIPT") && !c.over:
		c.sendWhole()
		c.place = mailed
		n.mail.pushFront(c)
		n.dispatchLocked()
		return Reply{}, again
	}
	possibly := !answered && !notSent(err)
	c.unclear = c.unclear || possibly || failed != nil // the first command was carried out
	retry := retryable(err) && !(c.Once && c.unclear)
	err = Explain(err)
	r, v := Reply{Err: err, Resent: c.unclear}, final
	if retry && !c.over {
		n.retryLocked(c, err)
		v = again
	}
	if possibly && timedOut(err) {
		if c.strayed && v == again {
			return r, v
		}
		c.strayed = true
		if v == again {
			v = straying
		}
	}
	return r, v
}
