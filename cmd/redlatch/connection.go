package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
)

// connection is a Locker on the Redis that the flags name.
type connection struct {
	redlatch.Locker
	quorum  bool
	traffic *traffic
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
	c := &connection{quorum: len(urls) > 1, traffic: &traffic{}}
	var clients []redis.UniversalClient
	for i, url := range urls {
		o, err := redis.ParseURL(url)
		if err != nil { // the text of err may contain the password
			return nil, misuse(command, fmt.Sprintf("URL %d of %s is not valid", i+1, source))
		}
		client := redis.NewClient(o)
		client.AddHook(c.traffic)
		clients = append(clients, client)
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

// silence keeps go-redis from writing to the stderr of COMMAND: redlatch reports errors itself.
type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

const (
	// quiet is the time without a command in flight after which the clean-up counts as done.
	quiet = 100 * time.Millisecond

	// longestSettling limits settle. It is enough for a release that gets no reply, and for its second send.
	longestSettling = 2*time.Second + quiet
)

// settle waits for the clean-up that a Locker does in the background. The end of the process would interrupt it. The
// first command of the clean-up may not have begun yet, so the time before settle does not count as quiet.
func (c *connection) settle() {
	c.traffic.add(0)
	for end := time.Now().Add(longestSettling); time.Now().Before(end) && !c.traffic.quietFor(quiet); {
		time.Sleep(quiet / 20)
	}
}

// traffic is a hook of clients that counts the commands in flight.
type traffic struct {
	mu       sync.Mutex // guards the fields below
	underway int
	last     time.Time // when one began or ended
}

func (t *traffic) add(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.underway += n
	t.last = time.Now()
}

// quietFor reports whether no command has been in flight for d.
func (t *traffic) quietFor(d time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.underway == 0 && time.Since(t.last) >= d
}

// DialHook changes nothing.
func (t *traffic) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook counts a command.
func (t *traffic) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		t.add(1)
		defer t.add(-1)
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook counts a pipeline.
func (t *traffic) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		t.add(1)
		defer t.add(-1)
		return next(ctx, cmds)
	}
}
