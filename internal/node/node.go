// Package node sends commands to one Redis, and calls back once for each within its timeout,
// whatever the settings of the client are.
//
// A node is a mailbox with a few couriers. Whoever wants a command run posts a [Call]. A courier is
// a goroutine. It takes all calls in the mailbox, sends them as one pipeline, and delivers the
// replies. It starts when a call finds less than the maximum of couriers busy, which is higher on a
// long way, and ends when the mailbox is empty. So a call is sent at once unless all couriers are
// busy; batches form while they are. A call ends with its reply or with its timeout. What was not
// sent by then never is.
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
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/clock"
)

const (
	couriers       = 4   // batches under way at once, with a client of one server
	longestBatch   = 64  // calls in one of them
	singleCouriers = 500 // calls under way at once, with any other client

	insistFor   = time.Minute // after the timeout of a call that insists
	insistEvery = time.Second // or its timeout, if that is longer

	tick = time.Millisecond // the least time between two runs of the timer
)

// A Node is one Redis: a server, or whatever a client presents as one. Its methods may be called
// from many goroutines.
type Node struct {
	// Trouble is called for a send that failed and is retried, and for a call that timed out. It
	// may be set before the first call. It runs under the mutex, and must not block or use the
	// node.
	Trouble func(error)

	client redis.UniversalClient
	limits
	run func() // the method courier; a variable saves an allocation at each start

	mu       sync.Mutex // guards the fields below and the lower part of every Call
	mail     []*Call    // the mailbox: the calls to send, in order. Those that are urgent come first
	first    int        // how many of them are urgent
	busy     int        // couriers at work
	width    width      // how many couriers are of use
	lost     int        // couriers written off
	source   bool       // EVALSHA is renamed away, so each call has the source of its script
	connects *trip      // the one that opens a connection for later calls, or nil
	timed    []*Call    // those that have not ended
	timer    *time.Timer
	fires    clock.Mono // when timer fires; 0: it is not set
	ended    *Call      // the newest of those whose receivers have not been called yet; next leads to the one before
	health
	illness
	clock clockOffset
	slots Slots
}

// limits are those of a kind of client.
type limits struct {
	batch     int  // calls that one courier takes at once
	most      int  // couriers at once
	mostOfUse int  // couriers at once on a long way: others, and other Lockers, need connections too
	mostLost  int  // couriers written off at once
	several   bool // the client may have several servers
}

// health is what is known of the server.
type health struct {
	answered clock.Mono // when it last answered
	served   clock.Mono // when it last carried out a command
	silent   bool       // a call timed out, and it has sent nothing since that call was made
	trouble  error      // why a call was last resent; nil after an answer
}

// New returns a node for client. Calls on a *[redis.Client] travel in batches. Any other client may
// have several servers, so each call travels alone.
func New(client redis.UniversalClient) *Node {
	n := &Node{client: client, slots: SlotsOf(client)}
	n.limits = limits{batch: 1, most: singleCouriers, mostLost: singleCouriers, several: true}
	n.Trouble, n.run = func(error) {}, n.courier
	n.timer = time.AfterFunc(time.Hour, n.fire)
	n.timer.Stop()
	if client, plain := client.(*redis.Client); plain {
		n.batch, n.most, n.several = longestBatch, couriers, false
		n.mostOfUse = connections(client) / 3
		o := client.Options()
		// With so many, no connection is left.
		n.mostLost = max(couriers, o.PoolSize+max(cmp.Or(o.PipelinePoolSize, pipelinePool), 0))
	}
	return n
}

// pipelinePool is how many connections for pipelines a client has by default: 10 since go-redis
// v9.23, and none before.
const pipelinePool = 10

// NewSlow returns a node for calls that may take long, such as WAIT. More of them are under way at
// once. Half of the connections that the client has for all commands are left for others. A client
// with one connection has none left before go-redis v9.23.
func NewSlow(client redis.UniversalClient) *Node {
	n := New(client)
	n.most = max(1, connections(client)/2)
	return n
}

// connections returns how many connections client has to one server, without those for pipelines
// alone.
func connections(client redis.UniversalClient) int {
	size, most := 2*singleCouriers, 0
	switch client := client.(type) {
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
	defer n.mu.Unlock()
	return n.served > since
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
	c.deadline, c.at = max(now, c.ready).Add(c.Timeout), len(n.timed)
	if c.limit == 0 {
		c.limit = c.deadline.Add(-c.Timeout / 10)
		if c.Began != 0 {
			c.limit = c.limit.Add(-now.Sub(c.Began))
		}
	}
	n.timed = append(n.timed, c)
	n.fireByLocked(c.deadline.Add(-c.Timeout/2), now)
	if n.ill() && !n.several || c.ready > now {
		n.parkLocked(c, now)
		return
	}
	n.sendLocked(c)
}

// sendLocked puts calls into the mailbox. It starts a courier if there are any and one more is
// allowed.
func (n *Node) sendLocked(calls ...*Call) {
	for _, c := range calls {
		if c.Urgent {
			n.mail = slices.Insert(n.mail, n.first, c)
			n.first++
		} else {
			n.mail = append(n.mail, c)
		}
	}
	if len(n.mail) > 0 && n.lost < n.mostLost && n.busy < n.mostLocked() {
		n.busy++
		go n.run()
	}
}

// mostLocked returns how many couriers may be busy now.
func (n *Node) mostLocked() int {
	if n.silent || n.ill() {
		return n.most
	}
	return max(n.most, min(n.width.couriers(), n.mostOfUse))
}

// endLocked ends c with the reply r. It is not sent any more, and later replies are ignored.
func (n *Node) endLocked(c *Call, r Reply) {
	if r.Err != nil && !c.resent && c.trip == nil && !Answered(r.Err) {
		r.Err = &NotDone{r.Err}
	}
	r.Resent = c.resent
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
	if c.Again != 0 {
		now := clock.MonoNow()
		n.repeatLocked(c, max(c.Again, c.limit).Sub(now), now) // so late it creates nothing more
	}
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

// fireByLocked has the timer fire at the time at or earlier.
func (n *Node) fireByLocked(at, now clock.Mono) {
	if n.fires != 0 && n.fires <= at {
		return
	}
	n.fires = at
	n.timer.Reset(at.Sub(now))
}

// fire runs when the timer fires. It ends the calls whose time has passed, and sees to those whose
// time has half passed.
func (n *Node) fire() {
	n.mu.Lock()
	defer n.unlock()
	now := clock.MonoNow()
	n.fires = 0
	for _, c := range slices.Backward(n.timed) { // the last one takes the place of one that ends
		switch half := c.deadline.Add(-c.Timeout / 2); {
		case c.deadline <= now:
			n.timeOutLocked(c, now)
		case half <= now:
			n.connectLocked(c)
			n.fireByLocked(max(c.deadline, now.Add(tick)), now)
		default:
			n.fireByLocked(max(half, now.Add(tick)), now)
		}
	}
	n.mail = slices.DeleteFunc(n.mail, func(c *Call) bool { return c.at == over })
	n.first = 0
	for n.first < len(n.mail) && n.mail[n.first].Urgent {
		n.first++
	}
	n.resendLocked(now)
}

// timeOutLocked ends a call whose time has passed.
func (n *Node) timeOutLocked(c *Call, now clock.Mono) {
	if n.answered < c.deadline.Add(-c.Timeout) {
		n.silent = true
	}
	n.slots.Reload()
	err := &NoReply{Within: c.Timeout, Last: cmp.Or(c.trouble, n.trouble)}
	n.Trouble(err)
	n.repeatLocked(c, 0, now)
	n.endLocked(c, Reply{Err: err})
}

// repeatLocked posts a call once more that ends now, after a pause, if it insists. The node gives
// up after a minute. What the repeat creates or keeps counts from the first call.
func (n *Node) repeatLocked(c *Call, pause time.Duration, now clock.Mono) {
	gives := cmp.Or(c.gives, now.Add(insistFor))
	if !c.Insists || now >= gives {
		return
	}
	repeat := &Call{
		Timeout: max(c.Timeout, insistEvery), Insists: true, Again: c.Again, command: c.command, ctx: c.ctx,
		limit: c.limit, ready: now.Add(pause), gives: gives,
		earlier: earlier{sent: true, resent: c.resent || c.trip != nil},
	}
	if repeat.ready >= c.Again {
		repeat.Again = 0
	}
	n.postLocked(repeat, now)
	c.resent, c.Again = true, 0 // the repeat may be carried out
}
