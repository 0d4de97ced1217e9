// Package redlatchvalkey has redlatch send its commands over a client of valkey.
//
// [New] returns a client for the constructors of redlatch. It is one of go-redis, whose connections
// do not lead to a server: each of them reads the commands and gives them to valkey. So redlatch
// knows the address of the server, has batches, and has a node for each server of a Cluster. Hooks of
// both clients work.
//
// The import path is github.com/redlatch/redlatch/clients/valkeygo. The name of the package differs
// from the last element of that path, so that a file can also import github.com/valkey-io/valkey-go.
package redlatchvalkey

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/valkey-io/valkey-go"
)

// New returns a client for the constructors of redlatch, which sends commands over c. For a c of a
// Cluster it is a *[redis.ClusterClient], and otherwise a *[redis.Client]. For a nil c it is nil, which
// they refuse.
//
// The caller closes c. What New returns need not be closed, and does not close c.
//
// It carries single commands, pipelines and SUBSCRIBE. Commands that change a connection, such as
// those of a transaction, fail.
func New(c valkey.Client) redis.UniversalClient { return NewInDatabase(c, 0) }

// NewInDatabase is like [New], and says which database c has selected. valkey-go does not say so. The
// number is in the names of the channels of redlatch, and changes nothing else.
func NewInDatabase(c valkey.Client, database int) redis.UniversalClient {
	if c == nil {
		return nil
	}
	s := &source{client: c, cluster: c.Mode() == valkey.ClientModeCluster}
	addrs := slices.Sorted(maps.Keys(c.Nodes()))
	noNotices := &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	if s.cluster {
		return redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: addrs, Dialer: s.dial, Protocol: protocol, DisableIdentity: true, MaintNotificationsConfig: noNotices,
			MaxRetries: never, ReadBufferSize: bufferSize, WriteBufferSize: bufferSize,
		})
	}
	addr := "valkey-go" // several servers, or the primary of Sentinels, which changes
	if len(addrs) == 1 && c.Mode() != valkey.ClientModeSentinel {
		addr = addrs[0]
	}
	return redis.NewClient(&redis.Options{
		Addr: addr, DB: database, Dialer: s.dial, Protocol: protocol, DisableIdentity: true, MaintNotificationsConfig: noNotices,
		MaxRetries: never, ReadBufferSize: bufferSize, WriteBufferSize: bufferSize,
	})
}

const (
	protocol   = 2    // go-redis expects no other messages than replies
	never      = -1   // go-redis sends no command twice, as valkey-go does not
	bufferSize = 4096 // what is longer goes in parts, between two places in memory
)

// A source makes connections that lead to a client of valkey.
type source struct {
	client  valkey.Client
	cluster bool
	closing atomic.Bool // a command has ended with valkey.ErrClosing
}

// dial returns a connection at once. valkey-go connects when it carries a command.
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

// closed reports whether the user has closed the client. [valkey.ErrClosing] alone does not say so:
// commands end with it, too, if their server has left a Cluster, or is not the primary any more.
func (s *source) closed(ctx context.Context) bool {
	if !s.closing.Load() {
		return false
	}
	still := errors.Is(s.client.Do(ctx, s.client.B().Ping().Build()).NonValkeyError(), valkey.ErrClosing)
	s.closing.Store(still)
	return still
}
