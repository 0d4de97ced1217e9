package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/clock"
)

// A trip is one batch that a courier carries. It is also the context of its commands. It ends when
// all its calls have ended, so that go-redis stops waiting for a connection.
type trip struct {
	context.Context // that of the first call that has one, for its values
	passengers      []passenger
	only            [1]passenger  // the array of passengers if there is only one
	deadline        time.Time     // zero: it has none
	done            chan struct{} // closed when the trip is over, or written off; nil: it does not end

	// Guarded by Node.mu.
	left       clock.Mono
	live       int // calls that have neither ended nor left it
	writtenOff bool
}

// A passenger is a call on one trip. Only its courier uses the commands. The courier uses no other
// field of the call without Node.mu, since the call may have left the trip.
type passenger struct {
	call      *Call
	cmd, then *redis.Cmd
}

func (t *trip) Deadline() (time.Time, bool) { return t.deadline, !t.deadline.IsZero() }
func (t *trip) Done() <-chan struct{}       { return t.done }

func (t *trip) Err() error {
	select {
	case <-t.done:
		return context.Canceled
	default:
		return nil
	}
}

// once is a command that go-redis must not resend, since the node must know whether an earlier send
// may have been carried out.
type once struct{ *redis.Cmd }

func (once) NoRetry() bool { return true }

// courier carries calls. It ends when the mailbox is empty, when there are more couriers than are of
// use, or when a trip that was written off has returned.
func (n *Node) courier() {
	n.mu.Lock()
	for t := n.loadLocked(); t != nil; t = n.loadLocked() {
		n.mu.Unlock()
		n.carry(t)
		n.mu.Lock()
		goesOn := n.landLocked(t)
		n.unlock() // which calls the receivers
		if !goesOn {
			return
		}
		runtime.Gosched() // so that the next calls of the receivers leave together
		n.mu.Lock()
		if n.busy > n.mostLocked() { // the others carry what has come
			break
		}
	}
	n.busy--
	n.unlock()
}

// landLocked handles the outcome of t. It reports whether its courier goes on: one that was written
// off ends.
func (n *Node) landLocked(t *trip) (goesOn bool) {
	if !t.writtenOff {
		close(t.done)
	}
	now := clock.MonoNow()
	for i := range slices.Backward(t.passengers) { // so that the receiver of the first is called first
		n.arrivedLocked(&t.passengers[i], now)
	}
	if t == n.connects {
		n.connects = nil
	}
	if n.answered == now {
		n.width.observe(now, now.Sub(t.left), len(t.passengers))
	}
	if t.writtenOff {
		n.lost--
		n.sendLocked()
	}
	return !t.writtenOff
}

// loadLocked takes calls out of the mailbox for one trip. It returns nil if there are none.
func (n *Node) loadLocked() *trip {
	if len(n.mail) == 0 {
		return nil
	}
	t := &trip{Context: context.Background(), done: make(chan struct{})}
	t.passengers = t.only[:0]
	now, end := clock.MonoNow(), clock.Mono(0)
	for i, c := range n.mail[:min(n.batch, len(n.mail))] {
		if i > 0 && (n.silent && !n.ill() || c.Then != nil || n.mail[0].Then != nil) {
			break
		}
		n.stampLocked(c, now)
		if n.source {
			c.sendSource()
		}
		c.sent, c.trip = true, t
		p := passenger{call: c, cmd: redis.NewCmd(t, c.words...)}
		if c.Then != nil {
			p.then = redis.NewCmd(t, c.Then...)
		}
		t.passengers = append(t.passengers, p)
		end = max(end, c.deadline)
	}
	t.deadline, t.live, t.left = end.Time(), len(t.passengers), now
	n.mail, n.first = slices.Delete(n.mail, 0, t.live), max(n.first-t.live, 0)
	named := func(p passenger) bool { return p.call.ctx != context.Background() } // renewals have that
	if i := slices.IndexFunc(t.passengers, named); i >= 0 {
		t.Context = t.passengers[i].call.ctx
	}
	n.sendLocked()
	return t
}

// carry sends the commands of t and waits for the replies.
func (n *Node) carry(t *trip) {
	returned := false
	defer func() {
		if !returned {
			n.survive(t, recover())
		}
	}()
	n.exchange(t)
	returned = true
}

// exchange calls the client, which calls hooks of its user.
func (n *Node) exchange(t *trip) {
	p := &t.passengers[0]
	cluster, clustered := n.client.(*redis.ClusterClient)
	switch {
	case clustered && p.then != nil:
		carryToMaster(t, cluster, p)
	case len(t.passengers) > 1, p.then != nil:
		carryTogether(t, n.client)
	default:
		if err := n.client.Process(t, once{p.cmd}); err != nil {
			p.cmd.SetErr(err)
		}
		_ = p.cmd.Err() // with a deferred pipeline this waits for the reply
	}
}

// carryTogether sends all commands of t as one pipeline.
func carryTogether(t *trip, client redis.UniversalClient) {
	pipe := client.Pipeline()
	for _, p := range t.passengers {
		_ = pipe.Process(t, once{p.cmd})
		if p.then != nil {
			_ = pipe.Process(t, once{p.then})
		}
	}
	cmds, err := pipe.Exec(t)
	if err == nil || Answered(err) {
		err = errNoReply
	}
	for _, cmd := range cmds {
		if cmd := cmd.(once); cmd.Err() == nil && cmd.Val() == nil { // a hook of the client failed
			cmd.SetErr(err)
		}
	}
}

var errNoReply = errors.New("the client returned no reply")

// carryToMaster sends both commands of a call to the master of its key.
func carryToMaster(t *trip, cluster *redis.ClusterClient, p *passenger) {
	master, err := cluster.MasterForKey(t, p.call.Key)
	if err != nil {
		p.cmd.SetErr(err)
		return
	}
	carryTogether(t, master)
	if err := p.cmd.Err(); redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK") {
		cluster.ReloadState(t)
		//nolint:errorlint // a wrapped answer of Redis would not be retried
		p.cmd.SetErr(fmt.Errorf("the slot has moved: %v", err))
	}
}

// arrivedLocked handles the outcome of a send. The call may have ended with its timeout.
func (n *Node) arrivedLocked(p *passenger, now clock.Mono) {
	c := p.call
	err, failed := p.outcome()
	late := n.heardLocked(p, err, now)
	if c.at == over {
		return
	}
	c.trip = nil
	if err != nil && (!notSent(err) || failed != nil) { // if the second failed, the first was carried out
		c.resent = true
	}
	switch {
	case late && n.inTimeLocked(c, now):
		n.sendLocked(c)
	case late:
		n.endLocked(c, Reply{Err: &NoReply{Within: c.Timeout, Last: cmp.Or(c.trouble, n.trouble, errTooLate)}})
	case err == nil && p.then != nil:
		n.endLocked(c, Reply{Value: p.cmd.Val(), Then: &Reply{Value: p.then.Val(), Err: Explain(failed)}})
	case err == nil:
		n.endLocked(c, Reply{Value: p.cmd.Val()})
	case c.script != nil && (redis.HasErrorPrefix(err, "NOSCRIPT") || lacksEval(err)):
		n.source = n.source || lacksEval(err)
		c.sendSource()
		n.sendLocked(c)
	case retryable(err):
		n.retryLocked(c, Explain(err), now)
	default:
		if says(err, rights...) { // they may be given back
			n.repeatLocked(c, insistEvery, now)
		}
		n.endLocked(c, Reply{Err: Explain(err)})
	}
}

// heardLocked notes what the outcome of a send says of the server. It reports whether the command
// came too late to create anything.
func (n *Node) heardLocked(p *passenger, err error, now clock.Mono) (late bool) {
	c := p.call
	if err == nil || Answered(err) {
		n.answered, n.silent, n.trouble = now, false, nil
	} else {
		n.slots.Reload()
	}
	if err == nil {
		n.served = now
	}
	if err == nil || Mistake(err) {
		n.recoverLocked(now)
	}
	at, late := tooLate(p.cmd.Val())
	if late = late && err == nil && c.latest > 0; late {
		n.clock.told(at, now, n.several)
		if n.several { // each has a clock of its own
			c.clock.told(at, now, true)
		}
	}
	return late
}

var errTooLate = errors.New("the command came too late")

// outcome returns the error of a send; nil if it was answered. failed is the error of the second
// command.
func (p *passenger) outcome() (err, failed error) {
	err = p.cmd.Err()
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	if err == nil && p.then != nil {
		if failed = p.then.Err(); failed != nil && (!Answered(failed) || retryable(failed)) {
			err = failed
		}
	}
	return err, failed
}
