// Package peers has an adapter for each library that is compared. They add no work: a lock is
// released by the library's own handle, without a closure or an allocation.
package peers

import (
	"context"
	"io"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/benchmarks/internal/delay"
)

// TTL is how long the locks of all peers last, if a measurement does not ask for another.
const TTL = 10 * time.Second

// Peer is a way to lock.
type Peer struct {
	Name string

	// Direct has the commands that its clients send, as commandstats names them. All other commands
	// are run by scripts. It is nil if the two cannot be told apart.
	Direct []string

	// Open connects a client of its own to one Redis.
	Open func(target Target) (Locker, error)

	// OpenQuorum connects to independent nodes. It is nil if the peer cannot do that.
	OpenQuorum func(nodes []Target) (Locker, error)

	// OpenRenewing is like Open, for locks of that TTL that are renewed until they are released.
	// They are all Renewed. It is nil if nothing renews.
	OpenRenewing func(target Target, ttl time.Duration) (Locker, error)
}

// All returns every peer, as a lock on one Redis.
func All() []Peer {
	return []Peer{Raw(), Redlatch(), Redsync(), Redislock(), Rueidislock()}
}

// Kind is a kind of go-redis clients.
type Kind int

// The kinds.
const (
	Plain Kind = iota
	AutoPipeline
	Cluster
)

// Target is one Redis, or a Cluster, and how to send to it.
type Target struct {
	Addr   string // of the Redis, or of a master of the Cluster
	Client Kind   // of the peers that use go-redis

	// RoundTrip is added to that of the machine.
	RoundTrip time.Duration

	// Username and Password are for peers that use go-redis. Without them the user is the default
	// one.
	Username, Password string
}

// Locker grants locks.
type Locker interface {
	// Lock waits until key is granted or ctx is done. ctx should have a deadline: bsm/redislock
	// gives up after the TTL otherwise.
	Lock(ctx context.Context, key string) (Lock, error)
	Close() error
}

// Lock is one grant.
type Lock interface {
	Unlock(ctx context.Context) error
}

// Fenced is a lock with a fence that grows from one grant to the next.
type Fenced interface {
	Lock
	Fence() uint64
}

// Renewed is a lock that something renews.
type Renewed interface {
	Lock
	// Held reports whether the peer considers the lock held.
	Held() bool
}

// scripts are the commands by which a go-redis client runs scripts, and the others that it sends.
var scripts = []string{
	"evalsha", "eval", "script|load", "ping", "subscribe", "unsubscribe",
	"hello", "client|setinfo", "client|tracking", "client|maint_notifications",
}

// client is a go-redis client, and what ends with it.
type client struct {
	redis.UniversalClient
	whole io.Closer
}

// pipelines are two at a time and short, so that a client writes one while Redis carries out the
// other. With 256 goroutines, all libraries on go-redis are faster with them than with its default,
// one pipeline of up to 300 commands.
func pipelines() *redis.AutoPipelineOptions {
	return &redis.AutoPipelineOptions{NumShards: 2, MaxConcurrentBatches: 2, Unordered: true, MaxBatchSize: 50}
}

// options returns the options of go-redis that reach the target. The others have their defaults.
func (t Target) options() *redis.Options {
	options := &redis.Options{Addr: t.Addr, Username: t.Username, Password: t.Password}
	if t.RoundTrip > 0 {
		options.Dialer = delay.Dial(t.RoundTrip)
	}
	return options
}

// connect returns a client of target.
func connect(target Target) (client, error) {
	options := target.options()
	if target.Client == Cluster {
		cluster := redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: []string{options.Addr}, Username: options.Username, Password: options.Password, Dialer: options.Dialer,
		})
		return client{cluster, cluster}, nil
	}
	options.AutoPipelineOptions = pipelines()
	plain := redis.NewClient(options)
	if target.Client == Plain {
		return client{plain, plain}, nil
	}
	pipelined, err := plain.AutoPipeline()
	return client{pipelined, plain}, err
}

// Close closes the plain client below a pipeline, which ends with it.
func (c client) Close() error { return c.whole.Close() }
