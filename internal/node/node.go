// Package node sends commands to one Redis and brings back the replies in time, whatever the settings of
// the client are.
//
// A node is a mailbox with a few couriers. Whoever wants a command run puts a [Call] into the mailbox and
// waits for its reply, for the end of a context, or for the timeout of the call. A courier is a
// goroutine. It takes everything that waits in the mailbox, sends it as one pipeline, and delivers the
// replies. Nothing waits for a batch to fill: a call leaves at once while fewer couriers than allowed are
// busy, and batches form while all of them are.
//
// go-redis does not interrupt a read when a context ends, so a courier can be stuck for as long as the
// client's ReadTimeout, or for ever. A courier whose calls have all ended is written off and replaced.
// Its connection may still bring a reply: see [Call.Late].
//
// # Goroutines
//
// A courier starts when a call finds fewer busy couriers than allowed, and ends when it finds the mailbox
// empty. An idle node has no goroutine. Couriers that were written off are limited in number, and end
// when go-redis returns.
//
// # Mutexes
//
// Node.mu is the only one. No command, callback or channel operation that can block runs under it, so neither
// may Trouble.
package node

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// couriers is how many batches of a client with one server are under way at once.
	couriers = 4

	// longestBatch is how many calls one courier takes.
	longestBatch = 64

	// singleCouriers is how many calls are under way at once where a courier carries one call.
	singleCouriers = 500
)

// The pause before a call is sent again doubles from firstPause to lastPause, with jitter.
const (
	firstPause = 4 * time.Millisecond
	lastPause  = 64 * time.Millisecond
)

// tick is the least time between two runs of a node's timer.
const tick = time.Millisecond

// A Node is one Redis: a server, or whatever a client takes for one. Its methods may be called from
// many goroutines.
type Node struct {
	// Trouble is told of a send that failed and is tried again, and of a call that timed out. It is set before
	// the first call. It runs under the mutex, and must not block or use the node. Nil: nobody needs to know.
	Trouble func(error)

	client    redis.UniversalClient
	pipelined *redis.Client // the client where one server gets everything, else nil
	most      int           // couriers at once
	mostLost  int           // couriers written off at once
	begin     time.Time     // from which instants are counted
	run       func()        // courier, as a value that costs nothing to start
	dones     sync.Pool     // of channels that Do waits on

	mu      sync.Mutex       // guards the fields below and the lower part of every Call
	mail    list             // calls to send, in order
	busy    int              // couriers at work
	lost    int              // couriers written off
	lanes   map[string]*Call // by key, the last ordered call that has not landed
	watched list             // calls with an instant at which the timer looks at them
	timer   *time.Timer
	fires   time.Duration // when the timer does; 0: it is not set
	heard   time.Duration // when the server last answered
	silent  bool          // a call timed out, and the server has answered nothing since the call was made
	trouble error         // why a call was sent again, last; nil after an answer
}

// New returns a node for client. Calls on a *[redis.Client] travel in batches. Any other client may spread
// its keys over several servers, so each call travels alone.
func New(client redis.UniversalClient) *Node {
	n := &Node{client: client, most: singleCouriers, mostLost: singleCouriers, begin: time.Now()}
	n.run = n.courier
	n.mail.link = func(c *Call) *link { return &c.inMail }
	n.watched.link = func(c *Call) *link { return &c.inWatched }
	if plain, ok := client.(*redis.Client); ok {
		o := plain.Options()
		n.pipelined, n.most = plain, couriers
		n.mostLost = max(couriers, o.PoolSize+pipelinePool(o.PipelinePoolSize)) // then no connection is left
	}
	return n
}

// NewSlow returns a node whose calls may take long, such as WAIT: more of them are under way at once. Half
// of the client's connections are left to others.
func NewSlow(client redis.UniversalClient) *Node {
	n := New(client)
	switch client := client.(type) {
	case *redis.Client:
		o := client.Options()
		n.most = max(1, (o.PoolSize+pipelinePool(o.PipelinePoolSize))/2)
	case *redis.ClusterClient: // all calls may go to one master
		o := client.Options()
		n.most = max(1, (o.PoolSize+pipelinePool(o.PipelinePoolSize))/2)
	}
	return n
}

// pipelinePool returns how many connections a client has for pipelines, by its option.
func pipelinePool(size int) int {
	if size == 0 {
		return redis.DefaultPipelinePoolSize
	}
	return max(size, 0)
}

// now returns this instant: how long the node has been there, and at least 1.
func (n *Node) now() time.Duration { return time.Since(n.begin) + 1 }

// Client returns the client of the node.
func (n *Node) Client() redis.UniversalClient { return n.client }

// Silent reports whether the server has answered nothing since a call that timed out was made.
func (n *Node) Silent() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.silent
}

// Do posts c and waits for its reply. If ctx ends first, that is the reply; what becomes of the call then,
// [Call.Persist] says.
func (n *Node) Do(ctx context.Context, c *Call) Reply {
	if ctx.Err() != nil && !c.Persist {
		return Reply{Err: &NotDone{CtxError(ctx)}}
	}
	done, _ := n.dones.Get().(chan struct{})
	if done == nil {
		done = make(chan struct{}, 1)
	}
	c.done = done
	n.Post(ctx, c)
	select {
	case <-done:
		n.dones.Put(done)
		r := c.reply
		if r.Err == nil && !c.shared { // else a timer or a courier may have it
			*c = Call{}
			calls.Put(c)
		}
		return r
	case <-ctx.Done():
		return c.leave(CtxError(ctx))
	}
}

// Post puts c into the mailbox and returns at once. A call is posted once. ctx lends its values to a
// call that travels alone, and nothing else.
func (n *Node) Post(ctx context.Context, c *Call) {
	c.ctx = ctx
	n.mu.Lock()
	defer n.mu.Unlock()
	n.postLocked(c, n.now())
}

func (n *Node) postLocked(c *Call, now time.Duration) {
	c.node, c.deadline = n, now+c.Timeout
	if c.Ordered && n.queueInLaneLocked(c, now) {
		n.watchLocked(c, min(now+c.Timeout/2, c.ahead.deadline))
		return
	}
	n.watchLocked(c, c.deadline)
	n.sendLocked(c)
}

// Cancel ends c for err unless it has ended. A call that was not sent yet never will be, and err is then
// marked [NotDone].
func (c *Call) Cancel(err error) {
	n := c.node
	n.mu.Lock()
	defer n.mu.Unlock()
	n.endLocked(c, Reply{Err: err})
}

// Leave says that nobody waits for c any more. The call goes on, and its reply is late.
func (c *Call) Leave() {
	c.node.mu.Lock()
	defer c.node.mu.Unlock()
	c.left = !c.over
}

// leave returns the reply of a caller whose context ended with err.
func (c *Call) leave(err error) Reply {
	n := c.node
	n.mu.Lock()
	defer n.mu.Unlock()
	if c.over {
		return c.reply
	}
	if c.trouble != nil {
		err = &CutShort{err, c.trouble}
	}
	if c.Persist {
		return Reply{Err: err}
	}
	n.endLocked(c, Reply{Err: err})
	return c.reply
}

// sendLocked has a courier take c.
func (n *Node) sendLocked(c *Call) {
	c.place = mailed
	n.mail.push(c)
	n.dispatchLocked()
}

// dispatchLocked starts a courier if there is mail and one more is allowed.
func (n *Node) dispatchLocked() {
	if n.mail.first != nil && n.busy < n.most && n.lost < n.mostLost {
		n.busy++
		go n.run()
	}
}

// endLocked ends c: it is not sent again, and what it still brings about is late. r is the reply unless
// there is one.
func (n *Node) endLocked(c *Call, r Reply) {
	if c.over {
		return
	}
	c.over = true
	n.watched.remove(c)
	switch c.place {
	case mailed:
		n.mail.remove(c)
		n.leaveLaneLocked(c)
	case travelling:
		n.getOffLocked(c.trip)
	default:
		n.leaveLaneLocked(c)
	}
	if r.Err != nil && c.place != travelling && !c.unclear && !c.heir && !Answered(r.Err) {
		r.Err = notDone(r.Err)
	}
	r.Resent = c.unclear
	c.reply = r
	switch {
	case c.done != nil:
		c.done <- struct{}{}
	case c.Report != nil:
		c.Report <- c
	}
}

// getOffLocked notes that a call on t has ended, or has gone on without it.
func (n *Node) getOffLocked(t *trip) {
	if t.live--; t.live == 0 {
		n.writeOffLocked(t)
	}
}

// writeOffLocked gives up waiting for the courier of t, so that another takes its place.
func (n *Node) writeOffLocked(t *trip) {
	t.writtenOff = true
	close(t.done)
	n.busy--
	n.lost++
	n.dispatchLocked()
}

// retryLocked has c sent again after a pause, because of err.
func (n *Node) retryLocked(c *Call, err error) {
	c.place = pausing
	if !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		c.trouble, n.trouble = err, err
		n.tellLocked(err)
	}
	c.pause = min(max(2*c.pause, firstPause), lastPause)
	// The timer ends by itself, and finds out then whether the call has ended.
	time.AfterFunc(c.pause/2+rand.N(c.pause), func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if !c.over {
			n.sendLocked(c)
		}
	})
}

// tellLocked reports trouble.
func (n *Node) tellLocked(err error) {
	if n.Trouble != nil {
		n.Trouble(err)
	}
}

// watchLocked has the timer look at c at an instant.
func (n *Node) watchLocked(c *Call, at time.Duration) {
	c.due = at
	n.watched.push(c)
	n.fireByLocked(at)
}

// fireByLocked has the timer fire at an instant or earlier.
func (n *Node) fireByLocked(at time.Duration) {
	if n.fires == 0 || at < n.fires {
		n.fireAtLocked(at)
	}
}

// fireAtLocked sets the timer.
func (n *Node) fireAtLocked(at time.Duration) {
	n.fires = at
	if n.timer == nil {
		n.timer = time.AfterFunc(at-n.now(), n.fire)
	} else {
		n.timer.Reset(at - n.now())
	}
}

// fire runs when the timer does: it looks at the calls that are due.
func (n *Node) fire() {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.now()
	n.fires = 0
	var next time.Duration
	for c := n.watched.first; c != nil; {
		following := c.inWatched.next
		if c.due <= now {
			n.dueLocked(c, now)
		}
		if !c.over && (next == 0 || c.due < next) {
			next = c.due
		}
		c = following
	}
	if next != 0 {
		n.fireAtLocked(max(next, now+tick))
	}
}

// dueLocked does what the time has come for: c leaves its lane, times out, or ends.
func (n *Node) dueLocked(c *Call, now time.Duration) {
	switch {
	case c.place == queued && now < c.deadline:
		n.passLaneLocked(c.ahead)
	case c.place == travelling && now < c.deadline: // its first send, while the server is silent
		c.due, c.unclear, c.shared = c.deadline, true, true
		n.getOffLocked(c.trip)
		c.trip = nil
		n.sendLocked(c)
	default:
		if n.heard < c.deadline-c.Timeout {
			n.silent = true
		}
		n.passLaneLocked(c)
		err := &NoReply{Within: c.Timeout, Last: c.trouble}
		if c.trouble == nil {
			err.Last = n.trouble
		}
		n.tellLocked(err)
		if c.Persist && (!c.Once || !c.unclear && c.place != travelling) {
			c.heir = true
			n.postLocked(&Call{
				Timeout: c.Timeout, Ordered: c.Ordered, Key: c.Key,
				script: c.script, words: c.words, ctx: c.ctx, unclear: c.unclear || c.place == travelling,
			}, now)
		}
		n.endLocked(c, Reply{Err: err})
	}
}
