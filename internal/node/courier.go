package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// A trip is one batch that a courier carries. It is also the context of its commands. It ends when all its calls
// have ended, so that go-redis stops waiting for a connection.
type trip struct {
	context.Context // that of the call if there is only one, for its values
	passengers      []passenger
	only            [1]passenger // the array of passengers if there is only one
	deadline        time.Time
	done            chan struct{} // closed when the trip is over, or written off

	// Guarded by Node.mu.
	live       int // calls that have neither ended nor left it
	writtenOff bool
}

// A passenger is a call on one trip. Only its courier uses the commands. The courier uses no other field of the
// call without Node.mu, since the call may have left the trip.
type passenger struct {
	call        *Call
	cmd, beside *redis.Cmd
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

// once is a command that go-redis must not resend, since the node must know whether an earlier send may have been
// carried out.
type once struct{ *redis.Cmd }

func (once) NoRetry() bool { return true }

// late is a pending call of [Call.Late].
type late struct {
	report func(Reply)
	reply  Reply
}

// deepen grows the stack of a new goroutine to the depth that go-redis needs, while there is little to copy. Growing
// it step by step costs more than a tenth of a command.
//
//go:noinline
func deepen(i int) byte {
	var stack [6 << 10]byte
	return stack[i%len(stack)]
}

// courier carries calls. It ends when the mailbox is empty, or when a trip that was written off has returned.
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
		lateReplies := n.unloadLocked(t)
		writtenOff := t.writtenOff
		if writtenOff {
			n.lost--
			n.dispatchLocked()
		}
		if writtenOff || lateReplies != nil {
			n.mu.Unlock()
			for _, s := range lateReplies {
				s.report(s.reply)
			}
			if writtenOff {
				return
			}
			n.mu.Lock()
		}
	}
}

// loadLocked takes calls out of the mailbox for one trip. It returns nil if there are none.
func (n *Node) loadLocked() *trip {
	c := n.mail.first
	if c == nil {
		return nil
	}
	t := &trip{Context: context.Background(), done: make(chan struct{})}
	t.passengers = t.only[:0]
	var end time.Duration
	most := longestBatch
	if n.pipelined == nil || n.silent {
		most = 1
	}
	for ; c != nil && len(t.passengers) < most && (c.Beside == nil || len(t.passengers) == 0); c = n.mail.first {
		n.mail.remove(c)
		if n.silent {
			c.hurryLocked()
		}
		c.place, c.trip, c.sent = travelling, t, true
		p := passenger{call: c, cmd: redis.NewCmd(t, c.words...)}
		if c.Beside != nil {
			p.beside = redis.NewCmd(t, c.Beside...)
		}
		t.passengers = append(t.passengers, p)
		end = max(end, c.deadline)
		if c.Beside != nil {
			break
		}
	}
	t.deadline = n.begin.Add(end)
	t.live = len(t.passengers)
	if t.live == 1 {
		t.Context = t.passengers[0].call.ctx
	}
	return t
}

// hurryLocked limits the first send of c while the server is silent. Old connections may be dead while new ones
// work, so the first send gets a quarter of the time, and the next one the rest.
func (c *Call) hurryLocked() {
	if c.sent || c.Beside != nil || c.Once {
		return
	}
	now := c.node.now()
	c.due = now + (c.deadline-now)/4
	c.node.fireByLocked(c.due)
}

// carry sends the commands of t and waits for the replies.
func (n *Node) carry(t *trip) {
	if len(t.passengers) == 1 {
		if p := &t.passengers[0]; p.beside != nil {
			carryBoth(t, n.client, p)
		} else {
			process(t, n.client, p.cmd)
		}
		return
	}
	pipe := n.client.Pipeline()
	for i := range t.passengers {
		_ = pipe.Process(t, once{t.passengers[i].cmd})
	}
	_, err := pipe.Exec(t)
	for i := range t.passengers {
		unanswered(t.passengers[i].cmd, err)
	}
}

// process runs one command. If there was no reply, cmd has an error afterwards.
func process(t *trip, client redis.UniversalClient, cmd *redis.Cmd) {
	if err := client.Process(t, once{cmd}); err != nil {
		cmd.SetErr(err)
	}
	_ = cmd.Err() // with a deferred pipeline this waits for the reply
}

// unanswered sets the error of cmd to that of its pipeline if cmd has neither a value nor an error: a hook of the
// client failed.
func unanswered(cmd *redis.Cmd, err error) {
	if cmd.Err() != nil || cmd.Val() != nil {
		return
	}
	if err == nil || Answered(err) {
		err = errNoReply
	}
	cmd.SetErr(err)
}

var errNoReply = errors.New("the client returned no reply")

// carryBoth sends both commands of c, on one connection if the client allows that.
func carryBoth(t *trip, client redis.UniversalClient, p *passenger) {
	cluster, clustered := client.(*redis.ClusterClient)
	if clustered {
		master, err := cluster.MasterForKey(t, p.call.Key)
		if err != nil {
			p.cmd.SetErr(err)
			return
		}
		client = master
	}
	if _, one := client.(*redis.Client); !one {
		process(t, client, p.cmd)
		process(t, client, p.beside)
		return
	}
	pipe := client.Pipeline()
	_ = pipe.Process(t, once{p.cmd})
	_ = pipe.Process(t, once{p.beside})
	_, err := pipe.Exec(t)
	unanswered(p.cmd, err)
	unanswered(p.beside, err)
	if err := p.cmd.Err(); clustered && (redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK")) {
		cluster.ReloadState(t)
		p.cmd.SetErr(fmt.Errorf("the slot has moved: %v", err)) //nolint:errorlint // a wrapped answer of Redis would not be retried
	}
}

// unloadLocked handles the outcome of each call of t. It returns the replies for Late.
func (n *Node) unloadLocked(t *trip) (lateReplies []late) {
	if !t.writtenOff {
		close(t.done)
	}
	for i := range t.passengers {
		c := t.passengers[i].call
		o := n.readLocked(&t.passengers[i])
		aboard := c.trip == t // else it has left this trip
		o.reply.Overtaken = !c.Ordered || c.overtaken || !aboard
		first := o.mayStillRun && !c.lateReported
		c.lateReported = c.lateReported || first
		if c.Late != nil && (c.over || first || !aboard && o.reply.Err != nil || c.left && !o.again) {
			lateReplies = append(lateReplies, late{c.Late, o.reply})
		}
		if aboard {
			c.trip, c.place, c.due = nil, returned, c.deadline
		}
		switch {
		case c.over:
			if aboard {
				n.leaveLaneLocked(c)
			}
		case o.reply.Err == nil:
			n.endLocked(c, o.reply) // the last use of c: its caller may reuse it
		case !aboard:
		case o.whole:
			c.sendWhole()
			c.place = mailed
			n.mail.pushFront(c)
			n.dispatchLocked()
		case o.again:
			n.retryLocked(c, o.reply.Err)
		default:
			n.endLocked(c, o.reply)
		}
	}
	return lateReplies
}

// An outcome is the result of one send of a call.
type outcome struct {
	reply       Reply
	again       bool // retry: another send may succeed
	whole       bool // with the source of the script
	mayStillRun bool // see MayStillRun
}

// readLocked returns the outcome of one send.
func (n *Node) readLocked(p *passenger) outcome {
	c := p.call
	err := p.cmd.Err()
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	var failed error // of the second command
	if err == nil && p.beside != nil {
		if failed = p.beside.Err(); failed != nil && (!Answered(failed) || retryable(failed)) {
			err = failed
		}
	}
	answered := Answered(err)
	if err == nil || answered {
		n.answered, n.silent = n.now(), false
	}
	if err == nil {
		n.trouble = nil
		o := outcome{reply: Reply{Value: p.cmd.Val(), Resent: c.unclear}}
		if p.beside != nil {
			o.reply.Beside = &Reply{Value: p.beside.Val(), Err: Explain(failed)}
		}
		return o
	}
	possibly := !answered && !notSent(err)
	c.unclear = c.unclear || possibly || failed != nil // if the second failed, the first was carried out
	whole := c.script != nil && redis.HasErrorPrefix(err, "NOSCRIPT")
	return outcome{
		reply:       Reply{Err: Explain(err), Resent: c.unclear},
		again:       whole || (retryable(err) || c.Persist && refusesWrites(err)) && (!c.Once || !c.unclear),
		whole:       whole,
		mayStillRun: possibly && timedOut(err),
	}
}
