// Package node sends commands to one Redis and returns the replies in time, whatever the settings of the client are.
//
// A node is a mailbox with a few couriers. To run a command, put a [Call] into the mailbox and wait for its reply, for
// the end of a context, or for the timeout of the call. A courier is a goroutine. It takes all calls in the mailbox,
// sends them as one pipeline, and delivers the replies. A call is sent at once unless all couriers are busy; batches
// form while they are.
//
// go-redis does not interrupt a read when a context ends, so a courier can be blocked for the client's ReadTimeout, or
// for ever. A courier whose calls have all ended is written off and replaced. Its connection may still bring a reply,
// see [Call.Late].
//
// A courier starts when a call finds less than the maximum of couriers busy, and ends when the mailbox is empty, so an
// idle node has no goroutine. Couriers that were written off are limited in number. They end when go-redis returns.
//
// Node.mu is the only mutex. No command, callback or blocking channel operation runs under it, except Trouble.
package node

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	couriers       = 4   // batches under way at once, with a client of one server
	longestBatch   = 64  // calls in one of them
	singleCouriers = 500 // calls under way at once, with any other client

	firstPause = 4 * time.Millisecond // before a resend; doubles up to lastPause, with jitter
	lastPause  = 64 * time.Millisecond

	tick = time.Millisecond // the least time between two runs of the timer

	longestYield = 200 * time.Microsecond // of a courier; longer ones cost more than they save
)

// A Node is one Redis: a server, or whatever a client presents as one. Its methods may be called from many goroutines.
type Node struct {
	// Trouble is called for a send that failed and is retried, and for a call that timed out. It may be set before the
	// first call. It runs under the mutex, and must not block or use the node.
	Trouble func(error)

	client   redis.UniversalClient
	batch    int       // calls that one courier takes at once
	most     int       // couriers at once
	mostLost int       // couriers written off at once
	begin    time.Time // when the node was made
	run      func()    // the method courier; a variable saves an allocation at each start
	dones    sync.Pool // of channels that Do waits on; of this node only, since those of a bubble of synctest stay in it

	mu       sync.Mutex       // guards the fields below and the lower part of every Call
	mail     link             // the root of the mailbox, the calls to send, in order
	busy     int              // couriers at work
	back     int              // those of them that yield before they load again
	yields   time.Duration    // when couriers may yield again
	lost     int              // couriers written off
	lanes    map[string]*Call // by key, the last ordered call that has not returned
	timed    link             // the root of the calls that the timer handles
	timer    *time.Timer
	fires    time.Duration // when timer fires; 0: it is not set
	answered time.Duration // when the server last answered
	silent   bool          // a call timed out, and the server has sent nothing since that call was made
	trouble  error         // why a call was last resent; nil after an answer
}

// New returns a node for client. Calls on a *[redis.Client] travel in batches. Any other client may have several
// servers, so each call travels alone.
func New(client redis.UniversalClient) *Node {
	n := &Node{
		Trouble: func(error) {}, client: client, batch: 1, most: singleCouriers, mostLost: singleCouriers,
		begin: time.Now(), lanes: make(map[string]*Call),
	}
	n.run = n.courier
	n.dones.New = func() any { return make(chan *Call, 1) }
	n.mail.prev, n.mail.next = &n.mail, &n.mail
	n.timed.prev, n.timed.next = &n.timed, &n.timed
	if _, plain := client.(*redis.Client); plain {
		n.batch, n.most = longestBatch, couriers
		n.mostLost = max(couriers, connections(client)) // with so many, no connection is left
	}
	return n
}

// NewSlow returns a node for calls that may take long, such as WAIT. More of them are under way at once. Half of
// the connections of the client are left for others.
func NewSlow(client redis.UniversalClient) *Node {
	n := New(client)
	n.most = max(1, connections(client)/2)
	return n
}

// connections returns how many connections client has to one server.
func connections(client redis.UniversalClient) int {
	pool, pipelines := 2*singleCouriers, -1 // of any other client
	switch client := client.(type) {
	case *redis.Client:
		pool, pipelines = client.Options().PoolSize, client.Options().PipelinePoolSize
	case *redis.ClusterClient: // all calls may go to one master
		pool, pipelines = client.Options().PoolSize, client.Options().PipelinePoolSize
	}
	return pool + max(cmp.Or(pipelines, redis.DefaultPipelinePoolSize), 0)
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
// [Call.OutlivesCaller] is set.
func (n *Node) Do(ctx context.Context, c *Call) Reply {
	if ctx.Err() != nil && !c.OutlivesCaller {
		return Reply{Err: &NotDone{CtxError(ctx)}}
	}
	done := n.dones.Get().(chan *Call)
	c.Report = done
	n.Post(ctx, c)
	select {
	case <-done:
		n.dones.Put(done)
		r := c.reply
		if r.Err == nil && !r.Resent { // else a courier may still use it
			*c = Call{}
			calls.Put(c)
		}
		return r
	case <-ctx.Done():
		return c.cutShort(CtxError(ctx))
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
	c.inMail.call, c.inTimed.call = c, c
	if c.Ordered && n.queueInLaneLocked(c, now) {
		c.due = min(now+c.Timeout/2, c.ahead.deadline)
	} else {
		n.sendLocked(c)
	}
	n.timed.push(&c.inTimed)
	n.fireByLocked(c.due, now)
}

// sendLocked puts c into the mailbox.
func (n *Node) sendLocked(c *Call) {
	c.place, c.due = mailed, c.deadline
	n.mail.push(&c.inMail)
	n.dispatchLocked()
}

// dispatchLocked starts a courier if there are calls and one more is allowed.
func (n *Node) dispatchLocked() {
	if n.mail.first() != nil && n.back == 0 && n.busy < n.most && n.lost < n.mostLost {
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
	c.inTimed.remove()
	switch c.place {
	case mailed:
		c.inMail.remove()
	case travelling:
		n.getOffLocked(c.trip)
	}
	n.leaveLaneLocked(c)
	if r.Err != nil && !c.mayBeDone() && !Answered(r.Err) {
		r.Err = &NotDone{r.Err}
	}
	r.Resent = c.unclear
	c.reply = r
	if c.Report != nil {
		c.Report <- c // the last use of c: its caller may reuse it
	}
}

// getOffLocked notes that a call on t has ended or has left it. If it was the last one, the courier of t is written
// off, so that another one takes its place.
func (n *Node) getOffLocked(t *trip) {
	if t.live--; t.live == 0 {
		t.writtenOff = true
		close(t.done)
		n.busy--
		n.lost++
		n.dispatchLocked()
	}
}

// retryLocked resends c after a pause, because of err.
func (n *Node) retryLocked(c *Call, err error) {
	c.place = pausing
	if !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		c.trouble, n.trouble = err, err
		n.Trouble(err)
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

// fireByLocked has the timer fire at the time at or earlier.
func (n *Node) fireByLocked(at, now time.Duration) {
	if n.fires != 0 && n.fires <= at {
		return
	}
	n.fires = at
	if n.timer == nil {
		n.timer = time.AfterFunc(at-now, n.fire)
	} else {
		n.timer.Reset(at - now)
	}
}

// fire runs when the timer fires. It handles the calls that are due.
func (n *Node) fire() {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.now()
	n.fires = 0
	var next time.Duration
	for at := n.timed.next; at != &n.timed; {
		c := at.call
		at = at.next
		if c.due <= now {
			n.dueLocked(c, now)
		}
		if !c.over && (next == 0 || c.due < next) {
			next = c.due
		}
	}
	if next != 0 {
		n.fireByLocked(max(next, now+tick), now) // dueLocked may have set it already
	}
}

// dueLocked handles a call that is due: it leaves its lane, is resent, or times out.
func (n *Node) dueLocked(c *Call, now time.Duration) {
	switch {
	case c.place == queued && now < c.deadline:
		n.passLaneLocked(c.ahead)
	case c.place == travelling && now < c.deadline: // the limit of hurryLocked for the first send
		c.unclear = true
		n.getOffLocked(c.trip)
		n.sendLocked(c)
	default:
		if n.answered < c.deadline-c.Timeout {
			n.silent = true
		}
		n.passLaneLocked(c)
		err := &NoReply{Within: c.Timeout, Last: c.lastTroubleLocked()}
		n.Trouble(err)
		if c.OutlivesCaller {
			n.postLocked(&Call{
				Timeout: c.Timeout, Ordered: c.Ordered, Key: c.Key,
				script: c.script, words: c.words, ctx: c.ctx, unclear: c.mayBeDone(),
			}, now)
			c.unclear = true // the new call may be carried out
		}
		n.endLocked(c, Reply{Err: err})
	}
}
