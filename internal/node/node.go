// Package node sends commands to one Redis and returns the replies in time, whatever the settings of the client
// are.
//
// A node is a mailbox with a few couriers. To run a command, put a [Call] into the mailbox and wait for its reply,
// for the end of a context, or for the timeout of the call. A courier is a goroutine. It takes all calls in the
// mailbox, sends them as one pipeline, and delivers the replies. No call waits for a batch to fill. A call is sent
// at once unless all couriers are busy; batches form while they are.
//
// go-redis does not interrupt a read when a context ends, so a courier can be blocked for the client's ReadTimeout,
// or for ever. A courier whose calls have all ended is written off and replaced. Its connection may still bring a
// reply, see [Call.Late].
//
// # Goroutines
//
// A courier starts when a call finds less than the maximum of couriers busy. It ends when the mailbox is empty. An
// idle node has no goroutine. Couriers that were written off are limited in number. They end when go-redis returns.
//
// # Mutexes
//
// Node.mu is the only one. No command, callback or blocking channel operation runs under it, except Trouble, which
// must not block.
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

	// longestBatch is the most calls that one courier takes.
	longestBatch = 64

	// singleCouriers is how many calls are under way at once if a courier carries one call.
	singleCouriers = 500
)

// The pause before a resend doubles from firstPause to lastPause, with jitter.
const (
	firstPause = 4 * time.Millisecond
	lastPause  = 64 * time.Millisecond
)

// tick is the least time between two runs of a node's timer.
const tick = time.Millisecond

// A Node is one Redis: a server, or whatever a client presents as one. Its methods may be called from many
// goroutines.
type Node struct {
	// Trouble is called for a send that failed and is retried, and for a call that timed out. It is set before the
	// first call and may be nil. It runs under the mutex, and must not block or use the node.
	Trouble func(error)

	client    redis.UniversalClient
	pipelined *redis.Client // the client if it has one server, else nil
	most      int           // couriers at once
	mostLost  int           // couriers written off at once
	begin     time.Time     // when the node was made
	run       func()        // the method courier; a variable saves an allocation at each start
	dones     sync.Pool     // of channels that Do waits on

	mu       sync.Mutex       // guards the fields below and the lower part of every Call
	mail     list             // calls to send, in order
	busy     int              // couriers at work
	lost     int              // couriers written off
	lanes    map[string]*Call // by key, the last ordered call that has not returned
	watched  list             // calls that the timer handles
	timer    *time.Timer
	fires    time.Duration // when timer fires; 0: it is not set
	answered time.Duration // when the server last answered
	silent   bool          // a call timed out, and the server has sent nothing since that call was made
	trouble  error         // why a call was last resent; nil after an answer
}

// New returns a node for client. Calls on a *[redis.Client] travel in batches. Any other client may have several
// servers, so each call travels alone.
func New(client redis.UniversalClient) *Node {
	n := &Node{client: client, most: singleCouriers, mostLost: singleCouriers, begin: time.Now()}
	n.run = n.courier
	n.mail.link = func(c *Call) *link { return &c.inMail }
	n.watched.link = func(c *Call) *link { return &c.inWatched }
	if plain, ok := client.(*redis.Client); ok {
		o := plain.Options()
		n.pipelined, n.most = plain, couriers
		n.mostLost = max(couriers, o.PoolSize+pipelinePool(o.PipelinePoolSize)) // with so many, no connection is left
	}
	return n
}

// NewSlow returns a node for calls that may take long, such as WAIT. More of them are under way at once. Half of
// the connections of the client are left for others.
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

// pipelinePool returns how many connections a client has for pipelines with this option.
func pipelinePool(size int) int {
	if size == 0 {
		return redis.DefaultPipelinePoolSize
	}
	return max(size, 0)
}

// now returns the time since the node was made, at least 1.
func (n *Node) now() time.Duration { return time.Since(n.begin) + 1 }

// Client returns the client of the node.
func (n *Node) Client() redis.UniversalClient { return n.client }

// Silent reports whether a call timed out and the server has sent nothing since that call was made.
func (n *Node) Silent() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.silent
}

// Do posts c and waits for its reply. If ctx ends first, the reply has the error of ctx, and the call ends unless
// [Call.Persist] is set.
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
		if r.Err == nil && !c.shared { // else a timer or a courier may still use it
			*c = Call{}
			calls.Put(c)
		}
		return r
	case <-ctx.Done():
		return c.leave(CtxError(ctx))
	}
}

// Post puts c into the mailbox and returns at once. A call is posted only once. A call that travels alone gets the
// values of ctx. Post uses nothing else of ctx.
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

// Cancel ends c with err unless it has ended. If c was not sent yet, it never will be, and err is marked [NotDone].
func (c *Call) Cancel(err error) {
	n := c.node
	n.mu.Lock()
	defer n.mu.Unlock()
	n.endLocked(c, Reply{Err: err})
}

// Leave says that nobody waits for c any more. The call continues, and its reply goes to Late.
func (c *Call) Leave() {
	c.node.mu.Lock()
	defer c.node.mu.Unlock()
	c.left = !c.over
}

// leave returns the reply for a caller whose context ended with err.
func (c *Call) leave(err error) Reply {
	n := c.node
	n.mu.Lock()
	defer n.mu.Unlock()
	if c.over {
		return c.reply
	}
	cut := &CutShort{Ctx: err}
	cut.Silent, cut.Trouble = c.lastTroubleLocked()
	if c.Persist {
		return Reply{Err: cut}
	}
	n.endLocked(c, Reply{Err: err})
	cut.Ctx = c.reply.Err // it is marked if c was not carried out
	c.reply.Err = cut
	return c.reply
}

// Trouble returns what [CutShort] says of a call without a reply.
func (c *Call) Trouble() (silent bool, trouble error) {
	c.node.mu.Lock()
	defer c.node.mu.Unlock()
	return c.lastTroubleLocked()
}

func (c *Call) lastTroubleLocked() (silent bool, trouble error) {
	switch {
	case c.trouble != nil:
		return false, c.trouble
	case c.node.trouble != nil:
		return false, c.node.trouble
	}
	return true, errSilent
}

// sendLocked puts c into the mailbox.
func (n *Node) sendLocked(c *Call) {
	c.place = mailed
	n.mail.push(c)
	n.dispatchLocked()
}

// dispatchLocked starts a courier if there are calls and one more is allowed.
func (n *Node) dispatchLocked() {
	if n.mail.first != nil && n.busy < n.most && n.lost < n.mostLost {
		n.busy++
		go n.run()
	}
}

// endLocked ends c with the reply r, unless it has ended. It is not sent any more, and later replies go to Late.
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

// getOffLocked notes that a call on t has ended or has left it.
func (n *Node) getOffLocked(t *trip) {
	if t.live--; t.live == 0 {
		n.writeOffLocked(t)
	}
}

// writeOffLocked writes off the courier of t, so that another one takes its place.
func (n *Node) writeOffLocked(t *trip) {
	t.writtenOff = true
	close(t.done)
	n.busy--
	n.lost++
	n.dispatchLocked()
}

// retryLocked resends c after a pause, because of err.
func (n *Node) retryLocked(c *Call, err error) {
	c.place = pausing
	if !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		c.trouble, n.trouble = err, err
		n.troubleLocked(err)
	}
	c.pause = min(max(2*c.pause, firstPause), lastPause)
	// The timer is not stopped when the call ends. Nobody waits for it.
	time.AfterFunc(c.pause/2+rand.N(c.pause), func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if !c.over {
			n.sendLocked(c)
		}
	})
}

func (n *Node) troubleLocked(err error) {
	if n.Trouble != nil {
		n.Trouble(err)
	}
}

// watchLocked has the timer handle c at the time at.
func (n *Node) watchLocked(c *Call, at time.Duration) {
	c.due = at
	n.watched.push(c)
	n.fireByLocked(at)
}

// fireByLocked has the timer fire at the time at or earlier.
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

// fire runs when the timer fires. It handles the calls that are due.
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
		n.fireByLocked(max(next, now+tick)) // dueLocked may have set it already
	}
}

// dueLocked handles a call that is due: it leaves its lane, is resent, or times out.
func (n *Node) dueLocked(c *Call, now time.Duration) {
	switch {
	case c.place == queued && now < c.deadline:
		n.passLaneLocked(c.ahead)
	case c.place == travelling && now < c.deadline: // the limit of hurryLocked for the first send
		c.due, c.unclear, c.shared = c.deadline, true, true
		n.getOffLocked(c.trip)
		c.trip = nil
		n.sendLocked(c)
	default:
		if n.answered < c.deadline-c.Timeout {
			n.silent = true
		}
		n.passLaneLocked(c)
		err := &NoReply{Within: c.Timeout}
		if silent, trouble := c.lastTroubleLocked(); !silent {
			err.Last = trouble
		}
		n.troubleLocked(err)
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
