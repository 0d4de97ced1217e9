// Package node sends commands to one Redis, and calls back once for each within its timeout, whatever the settings of the client
// are.
//
// A node is a mailbox with a few couriers. Whoever wants a command run posts a [Call]. A courier is a goroutine. It takes all
// calls in the mailbox, sends them as one pipeline, and delivers the replies. It starts when a call finds less than the maximum
// of couriers busy, and ends when the mailbox is empty. So a call is sent at once unless all couriers are busy; batches form
// while they are. A call ends with its reply or with its timeout. What was not sent by then never is.
//
// A call may be sent twice: the first connection broke, and nobody knows whether Redis has carried it out. What creates something
// says until when it may, see [Call.AppendLatest]. So a command that is posted when a call has ended with its timeout runs behind
// it, on whatever connection.
//
// go-redis does not interrupt a read when a context ends, so a courier can be blocked for the client's ReadTimeout, or for ever.
// A courier whose calls have all ended is written off and replaced, up to a number of them. It ends when go-redis returns.
//
// Node.mu is the only mutex. No command, callback or blocking channel operation runs under it, except Trouble.
package node

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
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

	insistFor   = time.Minute // after the timeout of a call that insists
	insistEvery = time.Second // or its timeout, if that is longer

	tick = time.Millisecond // the least time between two runs of the timer
)

// A Node is one Redis: a server, or whatever a client presents as one. Its methods may be called from many goroutines.
type Node struct {
	// Trouble is called for a send that failed and is retried, and for a call that timed out. It may be set before the first
	// call. It runs under the mutex, and must not block or use the node.
	Trouble func(error)

	client redis.UniversalClient
	limits
	begin time.Time // when the node was made
	run   func()    // the method courier; a variable saves an allocation at each start

	mu    sync.Mutex // guards the fields below and the lower part of every Call
	mail  []*Call    // the mailbox: the calls to send, in order
	busy  int        // couriers at work
	lost  int        // couriers written off
	timed []*Call    // those that have not ended
	timer *time.Timer
	fires time.Duration // when timer fires; 0: it is not set
	ended *Call         // the newest of those whose receivers have not been called yet; next leads to the one before
	health
	clock ahead
}

// limits are those of a kind of client.
type limits struct {
	batch    int // calls that one courier takes at once
	most     int // couriers at once
	mostLost int // couriers written off at once
}

// health is what is known of the server.
type health struct {
	answered time.Duration // when it last answered
	silent   bool          // a call timed out, and it has sent nothing since that call was made
	trouble  error         // why a call was last resent; nil after an answer
}

// New returns a node for client. Calls on a *[redis.Client] travel in batches. Any other client may have several servers, so each
// call travels alone.
func New(client redis.UniversalClient) *Node {
	n := &Node{client: client, limits: limits{1, singleCouriers, singleCouriers}, begin: time.Now()}
	n.Trouble, n.run = func(error) {}, n.courier
	n.timer = time.AfterFunc(time.Hour, n.fire)
	n.timer.Stop()
	if _, plain := client.(*redis.Client); plain {
		n.batch, n.most = longestBatch, couriers
		n.mostLost = max(couriers, connections(client)) // with so many, no connection is left
	}
	return n
}

// NewSlow returns a node for calls that may take long, such as WAIT. More of them are under way at once. Half of the connections
// of the client are left for others.
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

// Health reports whether a call timed out and the server has sent nothing since that call was made, and why a call was last
// resent; nil after an answer.
func (n *Node) Health() (silent bool, trouble error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.silent, n.trouble
}

// Post puts c into the mailbox and returns at once. A call is posted only once. A call that travels alone gets the values of ctx.
// Post uses nothing else of ctx.
func (n *Node) Post(ctx context.Context, c *Call) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c.ctx = ctx
	n.postLocked(c, n.now())
}

func (n *Node) postLocked(c *Call, now time.Duration) {
	c.deadline, c.at = now+c.Timeout, len(n.timed)
	n.timed = append(n.timed, c)
	n.sendLocked(c)
	n.fireByLocked(c.deadline, now)
}

// sendLocked puts calls into the mailbox. It starts a courier if there are any and one more is allowed.
func (n *Node) sendLocked(calls ...*Call) {
	n.mail = append(n.mail, calls...)
	if len(n.mail) > 0 && n.busy < n.most && n.lost < n.mostLost {
		n.busy++
		go n.run()
	}
}

// endLocked ends c with the reply r. It is not sent any more, and later replies are ignored.
func (n *Node) endLocked(c *Call, r Reply) {
	if r.Err != nil && !c.unclear && c.trip == nil && !Answered(r.Err) {
		r.Err = &NotDone{r.Err}
	}
	r.Resent = c.unclear
	if t := c.trip; t != nil {
		if t.live--; t.live == 0 { // its courier is written off, so that another one takes its place
			t.writtenOff = true
			close(t.done)
			n.busy--
			n.lost++
			n.sendLocked()
		}
	}
	end := len(n.timed) - 1
	n.timed[c.at], n.timed[end].at = n.timed[end], c.at
	n.timed[end], n.timed = nil, n.timed[:end]
	c.at, c.trip, c.reply, c.next, n.ended = over, nil, r, n.ended, c
}

// unlock unlocks mu, and calls the receivers of the calls that have ended.
func (n *Node) unlock() {
	ended := n.ended
	n.ended = nil
	n.mu.Unlock()
	for c := ended; c != nil; c = ended {
		ended = c.next
		if c.Done != nil {
			c.Done(c.reply)
		}
		if c.reply.Err == nil && !c.reply.Resent { // else a courier may still use it
			*c = Call{}
			calls.Put(c)
		}
	}
}

// retryLocked resends c after a pause, because of err.
func (n *Node) retryLocked(c *Call, err error) {
	if !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		c.trouble, n.trouble = err, err
		n.Trouble(err)
	}
	c.pause = min(max(2*c.pause, firstPause), lastPause)
	// The timer is not stopped when the call ends. Nobody waits for it.
	time.AfterFunc(c.pause/2+rand.N(c.pause), func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if c.at != over {
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
	n.timer.Reset(at - now)
}

// fire runs when the timer fires. It ends the calls whose time has passed.
func (n *Node) fire() {
	n.mu.Lock()
	defer n.unlock()
	now := n.now()
	n.fires = 0
	for _, c := range slices.Backward(n.timed) { // the last one takes the place of one that ends
		if c.deadline <= now {
			n.timeOutLocked(c, now)
		} else {
			n.fireByLocked(max(c.deadline, now+tick), now)
		}
	}
	n.mail = slices.DeleteFunc(n.mail, func(c *Call) bool { return c.at == over })
}

// timeOutLocked ends a call whose time has passed.
func (n *Node) timeOutLocked(c *Call, now time.Duration) {
	if n.answered < c.deadline-c.Timeout {
		n.silent = true
	}
	err := &NoReply{Within: c.Timeout, Last: cmp.Or(c.trouble, n.trouble)}
	n.Trouble(err)
	if gives := cmp.Or(c.gives, now+insistFor); c.Insists && now < gives {
		n.postLocked(&Call{
			Timeout: max(c.Timeout, insistEvery), Insists: true, command: c.command, ctx: c.ctx, gives: gives,
			earlier: earlier{sent: true, unclear: c.unclear || c.trip != nil},
		}, now)
		c.unclear = true // the new call may be carried out
	}
	n.endLocked(c, Reply{Err: err})
}
