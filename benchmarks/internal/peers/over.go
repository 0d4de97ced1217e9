package peers

import (
	"context"
	"crypto/tls"
	"net"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/valkey-io/valkey-go"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/benchmarks/internal/delay"
	redlatchrueidis "github.com/redlatch/redlatch/clients/rueidis"
	redlatchvalkey "github.com/redlatch/redlatch/clients/valkeygo"
)

// Clients returns this library over each client that it has, and what it is compared with.
func Clients() []Peer {
	return []Peer{Raw(), Redlatch(), OverRueidis(), OverValkeyGo(), Rueidislock()}
}

// OverRueidis is Redlatch over a client of rueidis.
func OverRueidis() Peer {
	return over("rueidis", func(target Target) (redis.UniversalClient, func(), error) {
		c, err := rueidis.NewClient(rueidisOption(target))
		if err != nil {
			return nil, nil, err
		}
		return redlatchrueidis.New(c), c.Close, nil
	})
}

// OverValkeyGo is Redlatch over a client of valkey-go.
func OverValkeyGo() Peer {
	return over("valkey-go", func(target Target) (redis.UniversalClient, func(), error) {
		option := valkey.ClientOption{InitAddress: []string{target.Addr}}
		if target.RoundTrip > 0 {
			dial := delay.Dial(target.RoundTrip)
			option.DialCtxFn = func(ctx context.Context, addr string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
				return dial(ctx, "tcp", addr)
			}
		}
		c, err := valkey.NewClient(option)
		if err != nil {
			return nil, nil, err
		}
		return redlatchvalkey.New(c), c.Close, nil
	})
}

func over(library string, connect func(Target) (redis.UniversalClient, func(), error)) Peer {
	return Peer{
		Name:   "redlatch over " + library,
		Direct: scripts,
		Open: func(target Target) (Locker, error) {
			c, end, err := connect(target)
			if err != nil {
				return nil, err
			}
			l, err := redlatch.NewSetNXPX(c, redlatch.WithTTL(TTL))
			return &redlatchLocker{l, []client{{c, closer(end)}}}, err
		},
	}
}

// A closer is how a client is closed.
type closer func()

// Close calls it.
func (c closer) Close() error {
	c()
	return nil
}
