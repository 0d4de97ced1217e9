// Package redlatchrueidis has redlatch send its commands over a client of rueidis.
//
// [New] returns a client for the constructors of redlatch. It is a client of go-redis whose
// connections do not lead to a server: each of them reads the commands and gives them to rueidis.
// So redlatch sends batches, and knows the address of each server, also of a Cluster. Hooks of both
// clients work.
//
// The import path is github.com/redlatch/redlatch/clients/rueidis. The name of the package differs
// from the last element of that path, so that a file can also import github.com/redis/rueidis.
package redlatchrueidis

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/redis/rueidis"
)

// New returns a client for the constructors of redlatch, which sends commands over c. For a c of a
// Cluster it is a *[redis.ClusterClient], and otherwise a *[redis.Client]. For a nil c it is nil, which
// they refuse.
//
// The caller closes c. The client that New returns need not be closed, and does not close c.
//
// It sends single commands, pipelines and SUBSCRIBE. Commands that change a connection, such as
// MULTI, fail.
func New(c rueidis.Client) redis.UniversalClient { return NewInDatabase(c, 0) }

// NewInDatabase is like [New], and says which database c has selected. rueidis does not say so. The
// number is in the names of the channels of redlatch, and changes nothing else.
func NewInDatabase(c rueidis.Client, database int) redis.UniversalClient {
	if c == nil {
		return nil
	}
	s := &source{client: c, cluster: c.Mode() == rueidis.ClientModeCluster}
	addrs := slices.Sorted(maps.Keys(c.Nodes()))
	noNotices := &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	if s.cluster {
		return redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: addrs, Dialer: s.dial, Protocol: protocol, DisableIdentity: true, MaintNotificationsConfig: noNotices,
			MaxRetries: never, ReadBufferSize: bufferSize, WriteBufferSize: bufferSize,
		})
	}
	addr := "rueidis" // several servers, or the primary of Sentinels, which changes
	if len(addrs) == 1 && c.Mode() != rueidis.ClientModeSentinel {
		addr = addrs[0]
	}
	return redis.NewClient(&redis.Options{
		Addr: addr, DB: database, Dialer: s.dial, Protocol: protocol,
		DisableIdentity: true, MaintNotificationsConfig: noNotices,
		MaxRetries: never, ReadBufferSize: bufferSize, WriteBufferSize: bufferSize,
	})
}

const (
	protocol   = 2    // go-redis expects no other messages than replies
	never      = -1   // go-redis sends no command twice, as rueidis does not
	bufferSize = 4096 // what is longer goes in parts, between two places in memory
)

// A source makes connections that lead to a client of rueidis.
type source struct {
	client  rueidis.Client
	cluster bool
	closing atomic.Bool // a command has ended with rueidis.ErrClosing
}

// dial returns a connection at once. rueidis connects when it carries a command.
func (s *source) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	c := &conn{source: s, server: s.client, whole: s.cluster, addr: connAddr(addr)}
	if s.cluster {
		if server, known := s.client.Nodes()[addr]; known {
			c.server, c.whole = server, false
		}
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c, nil
}

// closed reports whether the user has closed the client. [rueidis.ErrClosing] alone does not say so:
// commands end with it, too, if their server has left a Cluster, or is not the primary any more.
func (s *source) closed(ctx context.Context) bool {
	if !s.closing.Load() {
		return false
	}
	still := errors.Is(s.client.Do(ctx, s.client.B().Ping().Build()).NonRedisError(), rueidis.ErrClosing)
	s.closing.Store(still)
	return still
}
