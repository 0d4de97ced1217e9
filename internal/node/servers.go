package node

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/rediserr"
)

// On a Redis Cluster and a Ring, each server has a node of its own, which uses the client of that server.
// So calls of its keys travel in batches, and one that is slow, silent or ill holds up nobody else.
//
// The node of the whole sends nothing. It finds the server of a call, for which go-redis may have to ask the
// Cluster, and hands the call to the node of that server. It gets the calls that come while go-redis does not
// know the servers, those that a server has redirected, and those whose key has gone to another server while
// they waited.
//
// So a hook that a user has added to the client of a Cluster or Ring itself sees none of the commands. If it
// saw some, and wrote a prefix into keys, a key would have two names, and two owners.

// kin are the other nodes of a Cluster or Ring.
type kin struct {
	whole  *Node // the node of the whole, if this is that of a server; does not change
	handed queue // the calls that other nodes will carry

	// Of the node of the whole. route returns the server of a key. It does not change, and is nil in other nodes.
	route   func(ctx context.Context, key string) (*redis.Client, error)
	located bool // go-redis knows the servers
	servers map[*redis.Client]*Node
	masters map[string]*redis.Client // of a Cluster, by their addresses
	asked   clock.Mono               // when the masters were asked for
}

// mostServers is how many nodes of servers are kept. A Cluster has no more masters, but they may change
// their addresses.
const mostServers = 1000

// routeBy makes n the node of the whole if c is the client of a Cluster or Ring.
func (n *Node) routeBy(c client) {
	switch c := c.(type) {
	case *redis.ClusterClient:
		n.route = c.MasterForKey
	case *redis.Ring:
		n.route = func(_ context.Context, key string) (*redis.Client, error) { return c.GetShardClientForKey(key) }
		n.located = true
	default:
		return
	}
	n.several = false
}

// Of returns the node for calls of a key. On a Cluster or a Ring it is that of the server which has the
// key, as far as go-redis knows. Otherwise it is n.
func (n *Node) Of(key string) *Node {
	if n.route == nil {
		return n
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.located {
		return n
	}
	server, err := n.route(ended, key)
	if err != nil {
		return n
	}
	return n.nodeLocked(server)
}

// nodeLocked returns the node of a server.
func (n *Node) nodeLocked(server *redis.Client) *Node {
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

// ended is a context that has ended: go-redis answers by what it knows.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// locate finds the server for the call of b.
func (n *Node) locate(b *batch, i *item) {
	server, err := n.route(b, i.key)
	if words := strings.Fields(i.redirect); len(words) == 3 { // such as MOVED 5061 10.0.0.2:6379
		if server = n.masterAt(b, words[2]); server == nil {
			err = errUnknownServer
		}
	}
	if err != nil {
		i.cmd.SetErr(err)
		return
	}
	i.server = server
}

var errUnknownServer = errors.New("the slot of the key is on another server, which the client does not know yet")

// masterAt returns the master of a Cluster at an address, or nil. It has the Cluster asked for its masters once
// a second at most. go-redis has another client for a server that has left and has come back.
func (n *Node) masterAt(ctx context.Context, addr string) *redis.Client {
	cluster, is := n.client.(*redis.ClusterClient)
	now := clock.MonoNow()
	n.mu.Lock()
	server, asks := n.masters[addr], is && now.Sub(n.asked) >= reloadEvery
	if asks {
		n.asked = now
	}
	n.mu.Unlock()
	if !asks {
		return server
	}
	var mu sync.Mutex // guards found
	found := make(map[string]*redis.Client)
	err := cluster.ForEachMaster(ctx, func(_ context.Context, master *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		found[master.Options().Addr] = master
		return nil
	})
	if err != nil {
		return server
	}
	n.mu.Lock()
	n.masters = found
	n.mu.Unlock()
	return found[addr]
}

// locatedLocked hands c to the node of its server.
func (n *Node) locatedLocked(c *Call, server *redis.Client, now clock.Mono) {
	n.located, n.answered, n.silent, n.trouble = true, now, false, nil
	if c.at == over { // it has ended, or was made to open a connection
		return
	}
	n.illness.pass(c.kind(), c.sick, now)
	if c.parked {
		n.followLocked(now)
	}
	c.batch = nil
	n.handLocked(c, n.nodeLocked(server))
}

// isOpen reports whether the client of the whole may be open, though one has returned [redis.ErrClosed].
func (n *Node) isOpen(key string) bool {
	if n.whole != nil {
		server, err := n.whole.route(ended, key)
		return !errors.Is(err, redis.ErrClosed) && n.client != client(server)
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

// movedLocked reports whether another server has the key of c by now. One that was redirected is where it belongs.
func (n *Node) movedLocked(c *Call) bool {
	if n.whole == nil || c.redirect != "" {
		return false
	}
	server, err := n.whole.route(ended, c.key())
	return err != nil || n.client != client(server)
}

// redirects reports whether a server of a Cluster says that another one has the key.
func redirects(err error) bool {
	return err != nil && (redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK"))
}

// leavesLocked hands c to the node of the whole if its server does not have its key. A call that was redirected
// once more is tried again after a pause, since the servers disagree.
func (n *Node) leavesLocked(c *Call, redirected string, err error) bool {
	left := errors.Is(err, rediserr.ErrServerLeft)
	if n.whole == nil || redirected != "" || !left && !redirects(err) {
		return false
	}
	if !left {
		c.redirect = err.Error()
	}
	n.handLocked(c, n.whole)
	return true
}

// handLocked takes out c, so that another node carries it.
func (n *Node) handLocked(c *Call, to *Node) {
	if c.insistUntil != 0 {
		n.repeats--
	}
	n.end(c)
	c.to = to
	n.handed.put(c)
}

// take carries c, which another node has taken out.
func (n *Node) take(c *Call) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if c.insistUntil != 0 {
		n.repeats++
	}
	c.refused, c.sick, c.parked = false, false, false
	now := clock.MonoNow()
	n.add(c, now)
	n.readyLocked(c, now)
}
