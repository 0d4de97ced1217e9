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
		client, err := newClient(text)
		if err != nil { // its text may contain the password
			return nil, refusal(command, fmt.Sprintf("URL %d of %s is not valid: it must have the form %s", i+1, source, forms))
		}
		clients = append(clients, client)
	}
	return clients, nil
}

// forms are the forms of a URL.
const forms = "redis://HOST:PORT/DB, unix:///PATH?db=DB, redis+sentinel://HOST:PORT,HOST:PORT/NAME/DB or " +
	"redis+cluster://HOST:PORT,HOST:PORT. For TLS, write rediss in place of redis"

// neverAgain is the MaxRetries of a client that sends a command once. It also tries only once to connect: redlatch tries again
// itself, and so learns the reason before the op timeout, such as an unknown certificate or Sentinels that are unreachable.
const neverAgain = -1

// newClient returns a client of the server, or of the servers, that a URL names.
func newClient(text string) (redis.UniversalClient, error) {
	scheme, rest, _ := strings.Cut(text, "://")
	switch scheme {
	case "redis+sentinel":
		o, err := sentinels(rest)
		if err != nil {
			return nil, err
		}
		o.MaxRetries, o.DialerRetries = neverAgain, 1
		return redis.NewFailoverClient(o), nil
	case "redis+cluster", "rediss+cluster":
		o, err := nodesOfCluster(strings.TrimSuffix(scheme, "+cluster"), rest)
		if err != nil {
			return nil, err
		}
		o.MaxRetries, o.DialerRetries = neverAgain, 1
		return redis.NewClusterClient(o), nil
	}
	o, err := redis.ParseURL(text)
	if err != nil {
		return nil, err
	}
	o.MaxRetries, o.DialerRetries = neverAgain, 1
	return redis.NewClient(o), nil
}

// nodesOfCluster parses user:password@host:port,host:port. A Cluster has no other database than 0.
func nodesOfCluster(scheme, text string) (*redis.ClusterOptions, error) {
	text, query, _ := strings.Cut(text, "?")
	authority, db, _ := strings.Cut(text, "/")
	if db != "" && db != "0" {
		return nil, errors.New("a Cluster has only the database 0")
	}
	at := strings.LastIndex(authority, "@") + 1
	addrs := strings.Split(authority[at:], ",")
	for _, addr := range addrs {
		if _, _, err := net.SplitHostPort(addr); err != nil {
			return nil, err
		}
	}
	settings, err := url.ParseQuery(query)
	if err != nil {
		return nil, err
	}
	settings["addr"] = addrs[1:]
	return redis.ParseClusterURL(scheme + "://" + authority[:at] + addrs[0] + "?" + settings.Encode())
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
