package node

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/clock"
)

// On a Redis Cluster, each master has a node of its own. So calls of its keys travel in batches, and
// one that is slow or silent holds up nobody else. All of these nodes use the client of the Cluster,
// which may have hooks.
//
// If a server redirects a command, go-redis sends it to the other one, and the whole batch would wait
// for that. The other server may be silent. So the batch is interrupted, and the call goes on alone:
// the node of the whole Cluster carries it. That node also carries calls while go-redis does not know
// the masters.

// kin are the other nodes of a Redis Cluster.
type kin struct {
	masters    map[string]*Node // by address; nil: this is no node of a whole Cluster, or knows none
	whole      *Node            // the node of the whole Cluster, if this is that of a master; does not change
	redirected queue            // the calls that whole will carry
}

// mostMasters is how many nodes of masters are kept. A Cluster has no more, but its masters may change
// their addresses.
const mostMasters = 1000

// Of returns the node for calls of a key. On a Redis Cluster it is that of the master which has the
// key, as far as go-redis knows. Otherwise it is n.
func (n *Node) Of(key string) *Node {
	cluster, is := n.client.(*redis.ClusterClient)
	if !is {
		return n
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.answered == 0 { // go-redis would ask the servers for the slots
		return n
	}
	server, err := cluster.MasterForKey(context.Background(), key)
	if err != nil {
		return n
	}
	addr := server.Options().Addr
	master := n.masters[addr]
	if master == nil {
		if len(n.masters) == 0 || len(n.masters) >= mostMasters {
			n.masters = make(map[string]*Node) // what the former ones carry ends all the same
		}
		master = New(cluster)
		master.batches(cluster.Options().PoolSize, cluster.Options().PipelinePoolSize)
		master.whole, master.Trouble = n, n.Trouble
		n.masters[addr] = master
	}
	return master
}

// A followed command goes to a master. It notes that the server redirects it.
type followed struct {
	once
	item *item
	n    *Node
	b    *batch
}

// SetErr is called by go-redis when it has read a reply, and when a send has failed. When a batch is
// interrupted, it gives an error to all commands of it. That does not replace a reply.
func (f followed) SetErr(err error) {
	if err != nil && (f.item.redirected || f.Err() == nil && f.Val() != nil) {
		return
	}
	f.once.SetErr(err)
	if redirects(err) {
		f.item.redirected = true
		f.n.interrupt(f.b)
	}
}

// redirects reports whether a server of a Cluster says that another one has the key.
func redirects(err error) bool {
	return redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK")
}

// interrupt has go-redis send nothing more of b.
func (n *Node) interrupt(b *batch) {
	n.mu.Lock()
	defer n.mu.Unlock()
	b.interrupted = true
	b.endLocked()
}

// redirectLocked takes out c, so that the node of the whole Cluster carries it.
func (n *Node) redirectLocked(c *Call) {
	if c.insistUntil != 0 {
		n.repeats--
	}
	n.end(c)
	n.redirected.put(c)
}

// follow carries c, which the node of a master has taken out.
func (n *Node) follow(c *Call) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if c.insistUntil != 0 {
		n.repeats++
	}
	n.add(c, clock.MonoNow())
	n.sendLocked(c)
}
