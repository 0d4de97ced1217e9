package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
)

// connection is a Locker on the Redis that the flags name.
type connection struct {
	redlatch.Locker
	quorum bool
	nodes  []*traffic
}

// connect returns a connection for a command. It sends nothing.
func (f *redisFlags) connect(command string, opts ...redlatch.Option) (*connection, error) {
	redis.SetLogger(silence{})
	urls, source := f.urls, "-redis"
	if len(urls) == 0 {
		urls, source = strings.Fields(os.Getenv("REDIS_URL")), "REDIS_URL"
	}
	if len(urls) == 0 {
		return nil, misuse(command, "no Redis server is given: use -redis or set REDIS_URL")
	}
	c := &connection{quorum: len(urls) > 1}
	var clients []redis.UniversalClient
	for i, text := range urls {
		client, err := newClient(text)
		if err != nil { // its text may contain the password
			return nil, refusal(command, fmt.Sprintf("URL %d of %s is not valid: it must have the form %s", i+1, source, forms))
		}
		node := &traffic{}
		client.AddHook(node)
		c.nodes, clients = append(c.nodes, node), append(clients, client)
	}
	opts = append(opts, redlatch.WithKeyPrefix(f.prefix))
	var err error
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

// forms are the forms of a URL.
const forms = "redis://HOST:PORT/DB, rediss://HOST:PORT/DB for TLS, unix:///PATH?db=DB or redis+sentinel://HOST:PORT,HOST:PORT/NAME/DB. " +
	"Redis Cluster is not supported"

// neverAgain is the MaxRetries of a client that sends a command once. It also tries only once to connect: redlatch tries again
// itself, and so learns the reason before the op timeout, such as an unknown certificate or Sentinels that are unreachable.
const neverAgain = -1

// newClient returns a client of the server that a URL names.
func newClient(text string) (*redis.Client, error) {
	if rest, found := strings.CutPrefix(text, "redis+sentinel://"); found {
		o, err := sentinels(rest)
		if err != nil {
			return nil, err
		}
		o.MaxRetries, o.DialerRetries = neverAgain, 1
		return redis.NewFailoverClient(o), nil
	}
	o, err := redis.ParseURL(text)
	if err != nil {
		return nil, err
	}
	o.MaxRetries, o.DialerRetries = neverAgain, 1
	return redis.NewClient(o), nil
}

// sentinels parses user:password@host:port,host:port/NAME/db. The user and the password are those of the Redis servers.
func sentinels(text string) (*redis.FailoverOptions, error) {
	text, query, _ := strings.Cut(text, "?")
	authority, path, _ := strings.Cut(text, "/")
	name, db, _ := strings.Cut(path, "/")
	at := strings.LastIndex(authority, "@") + 1
	addrs := strings.Split(authority[at:], ",")
	if _, _, err := net.SplitHostPort(addrs[0]); err != nil || name == "" {
		return nil, errors.New("the first port or NAME is missing")
	}
	settings, err := url.ParseQuery(query)
	if err != nil {
		return nil, err
	}
	settings.Set("master_name", name)
	settings["addr"] = addrs[1:]
	o, err := redis.ParseFailoverURL("redis://" + authority[:at] + addrs[0] + "/" + db + "?" + settings.Encode())
	if err != nil {
		return nil, err
	}
	o.Username, o.Password, o.SentinelUsername, o.SentinelPassword = o.SentinelUsername, o.SentinelPassword, "", ""
	return o, nil
}

// silence keeps go-redis from writing to the stderr of COMMAND: redlatch reports errors itself.
type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}
