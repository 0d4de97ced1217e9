package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
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
		node.watch(client)
		c.nodes = append(c.nodes, node)
	}
	opts = append(append(opts, redlatch.WithKeyPrefix(f.prefix)), testTimeout...)
	switch {
	case bit(f.limit > 0)+bit(f.reads)+bit(f.writes) > 1:
		err = misuse(command, "-limit, -read and -write exclude each other")
	case c.quorum && (f.limit > 0 || f.reads || f.writes):
		err = misuse(command, "-limit, -read and -write need one Redis server, not a quorum")
	case c.quorum:
		c.Locker, err = redlatch.NewRedlock(clients, opts...)
	case command != "run":
		c.Locker, err = findingKinds(clients[0], opts)
	case f.limit > 0:
		c.Locker, err = redlatch.NewSemaphore(clients[0], f.limit, opts...)
	case f.reads || f.writes:
		c.Locker, err = f.side(clients[0], opts)
	default:
		c.Locker, err = redlatch.NewSetNXPX(clients[0], opts...)
	}
	return c, err
}

// side returns the Locker for readers or writers.
func (f *redisFlags) side(client redis.UniversalClient, opts []redlatch.Option) (redlatch.Locker, error) {
	read, write, err := redlatch.NewReadWrite(client, opts...)
	if f.writes {
		return write, err
	}
	return read, err
}

func bit(set bool) int {
	if set {
		return 1
	}
	return 0
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
	certificate, err := f.certificate(command)
	if err != nil {
		return nil, err
	}
	for i, text := range urls {
		client, err := redisurl.NewClient(text, certificate)
		switch {
		case errors.Is(err, redisurl.ErrNoTLS):
			return nil, misuse(command, fmt.Sprintf("-cert needs TLS, and URL %d of %s does not begin with rediss", i+1, source))
		case err != nil: // its text may contain the password
			why := "it must have the form " + redisurl.Forms
			if redisurl.Unescaped(text) {
				why = redisurl.Escapes
			}
			return nil, refusal(command, fmt.Sprintf("URL %d of %s is not valid: %s", i+1, source, why))
		}
		clients = append(clients, client)
	}
	return clients, nil
}

// certificate returns that of -cert, or nil.
func (f *redisFlags) certificate(command string) (*tls.Certificate, error) {
	switch {
	case f.cert == "" && f.certKey == "":
		return nil, nil
	case f.cert == "":
		return nil, misuse(command, "-cert-key needs -cert")
	}
	pair, err := tls.LoadX509KeyPair(f.cert, cmp.Or(f.certKey, f.cert))
	if err != nil {
		return nil, misuse(command, "-cert: "+err.Error())
	}
	return &pair, nil
}

// silence keeps go-redis from writing to the stderr of COMMAND: redlatch reports errors itself.
type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}
