// Package node sends commands to one Redis, and calls back once for each within its timeout,
// whatever the settings of the client are.
//
// A node is a mailbox with a few couriers. Whoever wants a command run posts a [Call]. A courier is
// a goroutine. It takes all calls in the mailbox, sends them as one pipeline, and delivers the
// replies. It starts when a call finds less than the maximum of couriers busy, which is higher on a
// long way, and ends when the mailbox is empty. So a call is sent at once unless all couriers are
// busy; batches form while they are. A call ends with its reply or with its timeout. What was not
// sent by then never is. On a Redis Cluster or a Ring, each server has a node, see [Node.Of].
//
// A call may be sent twice: the first connection broke, and nobody knows whether Redis has carried
// it out. What creates something says until when it may, see [Call.AppendLatest]. So a command that
// is posted when a call has ended with its timeout runs behind it, on whatever connection.
//
// go-redis does not interrupt a read when a context ends, so a courier can be blocked for the
// client's ReadTimeout, or for ever. A courier whose calls have all ended is written off and
// replaced, up to a number of them. It ends when go-redis returns. A connection that takes longer
// to open than a call may last is opened in the background, see connect.go.
//
// Node.mu is the only mutex. No command, callback or blocking channel operation runs under it,
// except Trouble.
package node

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/rediserr"
)

const (
	couriers       = 4   // batches under way at once, with a client of one server
	longestBatch   = 64  // calls in one of them
	singleCouriers = 500 // calls under way at once, with any other client
)

// A Node is one Redis: a server, or whatever a client presents as one. Its methods may be called
// from many goroutines.
type Node struct {
	// Trouble is called for a send that failed and is retried, and for a call that timed out. It
	// may be set before the first call. It runs under the mutex, and must not block or use the
	// node.
	Trouble func(error)

	client client
	limits
	run func() // the method courier; a variable saves an allocation at each start

	mu         sync.Mutex // guards the fields below and the lower part of every Call
	mail       queues     // the mailbox: the calls to send, in two of the ranks
	busy       int        // couriers at work
	width      width      // how many couriers are of use
	share      share      // how many of them leave connections to others
	opening    int        // scripts under way that open connections for couriers
	writtenOff int        // couriers
	noEvalSHA  bool       // EVALSHA is renamed away, so each call has the source of its script
	connects   *batch     // the one that opens a connection for later calls, or nil
	repeats    int        // calls that nobody waits for
	ended      queue      // the calls whose receivers have not been called yet
	refuses    bool       // a goroutine will call those of refused calls
	deadlines
	health
	park
	kin
	clock clockOffset
	slots Slots
}

// limits are those of a kind of client.
type limits struct {
	together       int  // calls that one courier takes at once
	most           int  // couriers at once
	mostWrittenOff int  // couriers written off at once
	several        bool // the client may have several servers
	slow           bool // see NewSlow
}

// health is what is known of the server.
type health struct {
	began    clock.Mono // when the first call was posted
	answered clock.Mono // when it last answered
	served   clock.Mono // when it last carried out a command
	first    clock.Mono // when it did so first
	silent   bool       // a call timed out, and it has sent nothing since that call was made
	trouble  error      // why a call was last resent; nil after an answer
}

// New returns a node for the client c. Calls on a *[redis.Client] travel in batches. Any other client
// may have several servers, so each call travels alone. For those of a *[redis.ClusterClient] or
// *[redis.Ring], see [Node.Of].
func New(c client) *Node {
	n := &Node{client: c, slots: SlotsOf(c)}
	n.limits = limits{together: 1, most: singleCouriers, mostWrittenOff: singleCouriers, several: true}
	n.Trouble, n.run = func(error) {}, n.courier
	n.timer = time.AfterFunc(time.Hour, n.fire)
	n.timer.Stop()
	if server, plain := c.(*redis.Client); plain {
		o := server.Options()
		n.limits = limits{together: longestBatch, most: couriers}
		n.share = shareOf(connections(server))
		// With so many, no connection is left.
		n.mostWrittenOff = max(couriers, o.PoolSize+max(cmp.Or(o.PipelinePoolSize, pipelinePool), 0))
	}
	n.routeBy(c)
	return n
}

// pipelinePool is how many connections for pipelines a client has by default: 10 since go-redis
// v9.23, and none before.
const pipelinePool = 10

// NewSlow returns a node for calls that may take long, such as WAIT. More of them are under way at
// once. Half of the connections that the client has for all commands are left for others. A client
// with one connection has none left before go-redis v9.23.
func NewSlow(c client) *Node {
	n := New(c)
	n.slow, n.most, n.share = true, max(1, connections(c)/2), share{}
	return n
}

// connections returns how many connections c has to one server, without those for pipelines
// alone.
func connections(c client) int {
	size, most := 2*singleCouriers, 0
	switch client := c.(type) {
	case *redis.Client:
		size, most = client.Options().PoolSize, client.Options().MaxActiveConns
	case *redis.ClusterClient: // all calls may go to one master
		size, most = client.Options().PoolSize, client.Options().MaxActiveConns
	}
	if most > 0 {
		return min(size, most)
	}
	return size
}

// Health reports whether a call timed out and the server has sent nothing since that call was made,
// and why a call was last resent; nil after an answer.
func (n *Node) Health() (silent bool, trouble error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.silent, n.trouble
}

// Served reports whether the server has carried out a command since a time.
func (n *Node) Served(since clock.Mono) bool {
	n.mu.Lock()
	served, servers := n.served, slices.Collect(maps.Values(n.servers))
	n.mu.Unlock()
	return served > since || slices.ContainsFunc(servers, func(s *Node) bool { return s.Served(since) })
}

// Post puts c into the mailbox and returns at once. A call is posted only once. A batch has the
// values of the first ctx in it that is not [context.Background]. Post uses nothing else of ctx.
func (n *Node) Post(ctx context.Context, c *Call) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c.ctx = ctx
	n.postLocked(c, clock.MonoNow())
}

func (n *Node) postLocked(c *Call, now clock.Mono) {
	n.began = cmp.Or(n.began, now)
	c.deadline = max(now, c.ready).Add(c.Timeout)
	if c.limit == 0 {
		c.limit = c.deadline.Add(-c.Timeout / 10)
		if c.Began != 0 {
			c.limit = c.limit.Add(-now.Sub(c.Began))
		}
	}
	if c.Spare && n.crowdedLocked() {
		n.refuseLocked(c)
		return
	}
	n.add(c, now)
	if c.ready <= now {
		n.readyLocked(c, now)
	}
}

// readyLocked sends a call whose time has come, or parks it.
func (n *Node) readyLocked(c *Call, now clock.Mono) {
	c.ready = 0
	if c.refused || !n.several && n.illness.parks(c.kind(), now) {
		n.parkLocked(c, now)
		return
	}
	n.sendLocked(c)
}

// sendLocked puts a call into the mailbox.
func (n *Node) sendLocked(c *Call) {
	rank := newAsks
	if c.Urgent {
		rank = newKeeps
	}
	n.mail[rank].put(c)
	n.startLocked()
}

// startLocked starts a courier if there are calls to send, and one more courier is allowed.
func (n *Node) startLocked() {
	if n.mail.first() != nil && n.writtenOff < n.mostWrittenOff && n.busy < n.mostLocked() {
		n.busy++
		go n.run()
	}
}

// mostLocked returns how many couriers may be busy now.
func (n *Node) mostLocked() int {
	if n.longWayLocked() {
		return max(n.most, min(n.width.couriers(), n.share.most))
	}
	return n.most
}

// longWayLocked reports whether more couriers would be of use than loopback has.
func (n *Node) longWayLocked() bool {
	return n.together > 1 && !n.silent && !n.illness.ill && n.width.couriers() > n.most
}

// endLocked ends c with the reply r. It is not sent any more, and later replies are ignored.
func (n *Node) endLocked(c *Call, r Reply) {
	if r.Err != nil && !c.resent && (c.batch == nil || n.route != nil) && !rediserr.Answered(r.Err) {
		r.Err = &rediserr.NotDone{Err: r.Err}
	}
	r.Resent = c.resent
	if b := c.batch; b != nil {
		if b.live--; b.live == 0 { // its courier is written off, so that another one takes its place
			b.writtenOff = true
			b.endLocked()
			n.busy--
			n.writtenOff++
			n.startLocked()
		}
	}
	n.end(c)
	c.leave()
	if c.insistUntil != 0 {
		n.repeats--
	}
	c.batch, c.reply = nil, r
	n.ended.put(c)
	if c.Again != 0 {
		now := clock.MonoNow()
		n.repeatLocked(c, max(c.Again, c.limit).Sub(now), now) // so late it creates nothing more
	}
}

// unlock unlocks mu, calls the receivers of the calls that have ended, and hands on those that other
// nodes will carry.
func (n *Node) unlock() {
	c, handed := n.ended.first, n.handed.first
	n.ended, n.handed = queue{}, queue{}
	n.mu.Unlock()
	for handed != nil {
		call, to := handed, handed.to
		handed, call.links, call.to = call.next, links{}, nil
		to.take(call)
	}
	for c != nil {
		ended := c
		c, ended.links = c.next, links{}
		if ended.Done != nil {
			ended.Done(ended.reply)
		}
		ended.useAgain()
	}
}

// fire runs when the timer fires.
func (n *Node) fire() {
	n.mu.Lock()
	defer n.unlock()
	now := clock.MonoNow()
	n.fires = 0
	for len(n.looks) > 0 && n.looks[0].due <= now {
		c := n.looks[0].call
		if c.deadline <= now {
			n.timeOutLocked(c, now)
			continue
		}
		switch {
		case c.ready != 0:
			n.readyLocked(c, now)
		case c.batch == nil && n.movedLocked(c): // it needs no courier of this server
			c.leave()
			n.handLocked(c, n.whole)
			continue
		case c.batch == nil && now < c.late():
			n.illness.hurry(c.deadline.Add(-c.Timeout), now)
		case c.batch == nil:
		case now < c.late():
			n.connectLocked(c)
		case c.deadline == c.batch.end:
			c.batch.endLocked()
			n.slots.Reload() // so that the next calls find the server that has taken over
		}
		n.again(c, now)
	}
	if len(n.looks) > 0 {
		n.fireBy(n.looks[0].due, now)
	}
	n.roundLocked(now)
}

// timeOutLocked ends a call whose time has passed.
func (n *Node) timeOutLocked(c *Call, now clock.Mono) {
	if n.answered < c.deadline.Add(-c.Timeout) {
		n.silent = true
	}
	n.slots.Reload()
	err := &rediserr.NoReply{Within: c.Timeout, Last: cmp.Or(c.trouble, n.trouble)}
	err.First = n.firstLocked(c, err.Last, now)
	n.Trouble(err)
	n.repeatLocked(c, 0, now)
	n.endLocked(c, Reply{Err: err})
}
