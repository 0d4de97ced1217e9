package node

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/clock"
)

// On a Redis Cluster and a Ring, each server has a node of its own. So calls of its keys travel in
// batches, and one that is slow or silent holds up nobody else. All of these nodes use the client of
// the whole, which may have hooks.
//
// If a server of a Cluster redirects a command, go-redis sends it to the other one, and the whole batch
// would wait for that. The other server may be silent. So the batch is interrupted, and the call goes
// on alone: the node of the whole carries it. So does a call whose key has gone to another server while
// it waited, or was tried again. That node also carries calls while go-redis does not know the servers.

// kin are the other nodes of a Cluster or Ring.
type kin struct {
	servers    map[string]*Node // by address; nil: this is no node of the whole, or knows none
	whole      *Node            // the node of the whole, if this is that of a server; does not change
	addr       string           // of the server; does not change
	redirected queue            // the calls that whole will carry, since another server has their keys
	located    bool             // the client of a Cluster knows its servers, of which none may have answered yet

	ofServer func(n *Node, server *redis.Client) // sets the limits of the node of a server; does not change
}

// mostServers is how many nodes of servers are kept. A Cluster has no more masters, but they may change
// their addresses.
const mostServers = 1000

// Of returns the node for calls of a key. On a Cluster or a Ring it is that of the server which has the
// key, as far as go-redis knows. Otherwise it is n. Servers to which the NewClient of a user has given
// one address share a node.
func (n *Node) Of(key string) *Node {
	switch n.client.(type) {
	case *redis.ClusterClient, *redis.Ring:
	default:
		return n
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.answered == 0 && !n.located { // the client of a Cluster may not know its servers yet
		return n
	}
	server, err := serverOf(n.client, key)
	if err != nil {
		return n
	}
	addr := server.Options().Addr
	of := n.servers[addr]
	if of == nil {
		if len(n.servers) == 0 || len(n.servers) >= mostServers {
			n.servers = make(map[string]*Node) // what the former ones carry ends all the same
		}
		of = New(n.client)
		n.ofServer(of, server)
		of.whole, of.addr, of.Trouble = n, addr, n.Trouble
		n.servers[addr] = of
	}
	return of
}

// ended is a context that has ended.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// serverOf returns the client of the server which has a key, as far as go-redis knows. It does not wait:
// go-redis knows no server if a hook of the client of a Cluster has answered in place of one.
func serverOf(c client, key string) (*redis.Client, error) {
	if ring, is := c.(*redis.Ring); is {
		return ring.GetShardClientForKey(key)
	}
	return c.(*redis.ClusterClient).MasterForKey(ended, key)
}

// isOpen reports whether the client is known to be open, though it has returned [redis.ErrClosed].
func (n *Node) isOpen(key string) bool {
	ring, is := n.client.(interface {
		GetShardClientForKey(key string) (*redis.Client, error)
	})
	if !is {
		return false
	}
	_, err := ring.GetShardClientForKey(key)
	return !errors.Is(err, redis.ErrClosed)
}

// movedLocked reports whether another server has the key of c by now.
func (n *Node) movedLocked(c *Call) bool {
	if n.whole == nil {
		return false
	}
	server, err := serverOf(n.client, c.key())
	return err != nil || server.Options().Addr != n.addr
}

// A followed command goes to a server of a Cluster or Ring. It notes that the server redirects it.
type followed struct {
	once
	item *item
	n    *Node
	b    *batch
}

// SetErr is called by go-redis when it has read a reply, and when a send has failed. When a batch is
// interrupted, it gives an error to all commands of it. That does not replace a reply. Any other error
// replaces a redirection: a hook that replaces contexts lets the command go to the other server.
func (f followed) SetErr(err error) {
	if err != nil && (f.item.redirected && errors.Is(err, context.Canceled) || f.Err() == nil && f.Val() != nil) {
		return
	}
	f.once.SetErr(err)
	f.item.again = false
	if redirects(err) {
		f.item.redirected = true
		f.n.interrupt(f.b)
	}
}

// Args is called by go-redis when it writes the command. An error that the command has by then is of a
// send before: no connection was free, or a hook has kept the batch from its interruption. If the
// connection breaks, go-redis replaces the error of the first command only.
func (f followed) Args() []any {
	f.item.again = f.Err() != nil
	return f.once.Args()
}

// redirects reports whether a server of a Cluster says that another one has the key.
func redirects(err error) bool {
	return err != nil && (redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK"))
}

// interrupt has go-redis send nothing more of b.
func (n *Node) interrupt(b *batch) {
	n.mu.Lock()
	defer n.mu.Unlock()
	b.interrupted = true
	b.endLocked()
}

// redirectLocked takes out c, so that the node of the whole carries it.
func (n *Node) redirectLocked(c *Call) {
	if c.insistUntil != 0 {
		n.repeats--
	}
	n.end(c)
	n.redirected.put(c)
}

// follow carries c, which the node of a server has taken out.
func (n *Node) follow(c *Call) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if c.insistUntil != 0 {
		n.repeats++
	}
	n.add(c, clock.MonoNow())
	n.sendLocked(c)
}
