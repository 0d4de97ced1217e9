package redistest

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	redlatchrueidis "github.com/redlatch/redlatch/clients/rueidis"
)

// .ci/over adds this file to the package redistest, so that the clients of tests are those of rueidis.
func init() {
	KeepsReplicas = true
	NewClient = func(tb testing.TB, o *redis.Options) *redis.Client {
		return over(tb, o.DB, rueidis.ClientOption{
			InitAddress: []string{o.Addr}, Username: o.Username, Password: o.Password, SelectDB: o.DB,
			ForceSingleClient: true, // else none can be made while the server is down
			DisableCache:      true, // miniredis has none
			DialCtxFn: func(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
				if o.Dialer != nil {
					return o.Dialer(ctx, o.Network, addr)
				}
				return d.DialContext(ctx, cmp.Or(o.Network, "tcp"), addr)
			},
		}).(*redis.Client)
	}
	NewCluster = func(tb testing.TB, o *redis.ClusterOptions) *redis.ClusterClient {
		return over(tb, 0, rueidis.ClientOption{InitAddress: o.Addrs}).(*redis.ClusterClient)
	}
	NewFailover = func(tb testing.TB, o *redis.FailoverOptions) *redis.Client {
		return over(tb, o.DB, rueidis.ClientOption{
			InitAddress: o.SentinelAddrs, Sentinel: rueidis.SentinelOption{MasterSet: o.MasterName}, SelectDB: o.DB,
		}).(*redis.Client)
	}
}

func over(tb testing.TB, database int, o rueidis.ClientOption) redis.UniversalClient {
	tb.Helper()
	c, err := rueidis.NewClient(o)
	if c == nil {
		tb.Skip("rueidis makes no client of a Cluster, or of Sentinels, that cannot be reached: ", err)
	}
	client := redlatchrueidis.NewInDatabase(c, database)
	tb.Cleanup(func() {
		_ = client.Close()
		c.Close()
	})
	return client
}
