package node

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/clock"
)

// On a Redis Cluster and a Ring, each server has a node of its own, which uses the client of that server.
// So calls of its keys travel in batches, and one that is slow or silent holds up nobody else.
//
// If a server redirects a command, or go-redis has closed its client, the call goes on alone: the node of
// the whole carries it, and go-redis finds the server that has the key. So does a call whose key has gone
// to another server while it waited, or was tried again. That node also carries calls while go-redis does
// not know the servers.

// kin are the other nodes of a Cluster or Ring.
type kin struct {
	servers    map[*redis.Client]*Node // nil: this is no node of the whole, or knows none
	whole      *Node                   // the node of the whole, if this is that of a server; does not change
	redirected queue                   // the calls that whole will carry, since another server has their keys
	located    bool                    // the client of a Cluster knows its servers, of which none may have answered yet
}

// mostServers is how many nodes of servers are kept. A Cluster has no more masters, but they may change
// their addresses.
const mostServers = 1000

// Of returns the node for calls of a key. On a Cluster or a Ring it is that of the server which has the
// key, as far as go-redis knows. Otherwise it is n.
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
	of := n.servers[server]
	if of == nil {
		if len(n.servers) == 0 || len(n.servers) >= mostServers {
			n.servers = make(map[*redis.Client]*Node) // what the former ones carry ends all the same
		}
		if of = New(server); n.slow {
			of = NewSlow(server)
		}
		of.whole, of.slots, of.Trouble = n, SlotsOf(n.client), n.Trouble
		n.servers[server] = of
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

// isOpen reports whether the client of the whole may be open, though one has returned [redis.ErrClosed].
func (n *Node) isOpen(key string) bool {
	if n.whole != nil {
		return true
	}
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
	server, err := serverOf(n.whole.client, c.key())
	return err != nil || n.client != client(server)
}

// redirects reports whether a server of a Cluster says that another one has the key.
func redirects(err error) bool {
	return err != nil && (redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK"))
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
