package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redisurl"
)

// connection is a Locker on the Redis that the flags name.
type connection struct {
	redlatch.Locker
	quorum bool
	nodes  []*traffic
}

// testTimeout is an op timeout for a test on a busy machine. Otherwise there is none.
var testTimeout []redlatch.Option

// connect returns a connection for a command. It sends nothing.
func (f *redisFlags) connect(command string, opts ...redlatch.Option) (*connection, error) {
	clients, err := f.clients(command)
	if err != nil {
		return nil, err
	}
	c := &connection{quorum: len(clients) > 1}
	for _, client := range clients {
		node := &traffic{}
		client.AddHook(node)
		c.nodes = append(c.nodes, node)
	}
	opts = append(append(opts, redlatch.WithKeyPrefix(f.prefix)), testTimeout...)
	switch {
	case c.quorum && f.limit > 0:
		err = misuse(command, "-limit needs one Redis server, not a quorum")
	case c.quorum:
		c.Locker, err = redlatch.NewRedlock(clients, opts...)
	case f.limit > 0:
		c.Locker, err = redlatch.NewSemaphore(clients[0], f.limit, opts...)
	default:
		c.Locker, err = redlatch.NewSetNXPX(clients[0], opts...)
	}
	return c, err
}

// clients returns clients of the servers that the flags name. It sends nothing.
func (f *redisFlags) clients(command string) (clients []redis.UniversalClient, err error) {
	redis.SetLogger(silence{})
	urls, source := f.urls, "-redis"
	if len(urls) == 0 {
		urls, source = strings.Fields(os.Getenv("REDIS_URL")), "REDIS_URL"
	}
	if len(urls) == 0 {
		return nil, misuse(command, "no Redis server is given: use -redis or set REDIS_URL")
	}
	for i, text := range urls {
		client, err := redisurl.NewClient(text)
		if err != nil { // its text may contain the password
			return nil, refusal(command, fmt.Sprintf("URL %d of %s is not valid: it must have the form %s", i+1, source, redisurl.Forms))
		}
		clients = append(clients, client)
	}
	return clients, nil
}

// silence keeps go-redis from writing to the stderr of COMMAND: redlatch reports errors itself.
type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}
