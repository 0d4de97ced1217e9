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
	passengers      []passenger
	only            [1]passenger // holds passengers where there is one
	deadline        time.Time
	done            chan struct{} // closed when the trip is over, or written off

	// Guarded by Node.mu.
	live       int // calls that have not ended, nor gone on without it
	writtenOff bool
}

// A passenger is a call on one trip, whose courier alone uses the commands. It uses nothing else of the call
// without Node.mu, for the call may go on without the trip.
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

// hurryLocked limits the first send of c where the server is silent. Old connections may be dead while new
// ones work, so the first gets a quarter of the time, and leaves the rest to the next.
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

var errNoReply = errors.New("the client returned no reply")

// carryBoth sends both commands of c. They share a connection where the client can say which.
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
		p.cmd.SetErr(fmt.Errorf("the slot has moved: %v", err)) //nolint:errorlint // as an answer of Redis it would be final
	}
}

// landLocked does with the calls of t what came of them. It returns what their Late is to be told.
func (n *Node) landLocked(t *trip) (stragglers []late) {
	if !t.writtenOff {
		close(t.done)
	}
	for i := range t.passengers {
		c := t.passengers[i].call
		o := n.readLocked(&t.passengers[i])
		o.reply.Overtaken = !c.Ordered || c.overtaken
		aboard := c.trip == t // else it went on without this trip
		strays := o.mayLand && !c.strayed
		c.strayed = c.strayed || strays
		if c.Late != nil && (c.over || strays || !aboard && o.reply.Err != nil || c.left && !o.again) {
			stragglers = append(stragglers, late{c.Late, o.reply})
		}
		if aboard {
			c.trip, c.place, c.due = nil, landed, c.deadline
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
	return stragglers
}

// An outcome is what came of one send of a call.
type outcome struct {
	reply   Reply
	again   bool // another send may succeed
	whole   bool // with the source of the script
	mayLand bool // see MayLand
}

// readLocked reads what came of one send.
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
		n.heard, n.silent = n.now(), false
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
	c.unclear = c.unclear || possibly || failed != nil // then the first command was carried out
	whole := c.script != nil && redis.HasErrorPrefix(err, "NOSCRIPT")
	return outcome{
		reply:   Reply{Err: Explain(err), Resent: c.unclear},
		again:   whole || (retryable(err) || c.Persist && refusesWrites(err)) && (!c.Once || !c.unclear),
		whole:   whole,
		mayLand: possibly && timedOut(err),
	}
}
