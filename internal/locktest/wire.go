package locktest

import (
	"context"
	"regexp"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/faultproxy"
	"github.com/redlatch/redlatch/internal/redistest"
)

// BehindProxy returns a client of a real server, a proxy in front of that server and a client that goes through it.
func BehindProxy(t *testing.T) (direct *redis.Client, p *faultproxy.Proxy, client *redis.Client) {
	t.Helper()
	s := redistest.Start(t)
	p = faultproxy.New(t, s.Network(), s.Addr())
	client = redis.NewClient(p.Options())
	t.Cleanup(func() { _ = client.Close() })
	require.NoError(t, client.Ping(t.Context()).Err())
	return s.Client(t), p, client
}

// Count returns a hook that adds each command of a client to n.
func Count(n *atomic.Int64) redis.Hook { return counter{n} }

type counter struct{ n *atomic.Int64 }

func (c counter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.n.Add(1)
		return next(ctx, cmd)
	}
}

func (c counter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.n.Add(int64(len(cmds)))
		return next(ctx, cmds)
	}
}

// ClientCommands returns the number of commands of Lockers that the server has executed so far.
func ClientCommands(tb testing.TB, admin *redis.Client) (n float64) {
	tb.Helper()
	info, err := admin.Info(context.Background(), "commandstats").Result()
	if err != nil {
		tb.Fatal(err)
	}
	for _, found := range regexp.MustCompile(`cmdstat_(?:evalsha|eval|ping|subscribe):calls=(\d+)`).FindAllStringSubmatch(info, -1) {
		calls, err := strconv.ParseFloat(found[1], 64)
		if err != nil {
			tb.Fatal(err)
		}
		n += calls
	}
	return n
}
