package field_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/locktest"
	"github.com/redlatch/redlatch/internal/testing/redistest"
)

// A slowness makes each connection take longer to open than a command may last, unless its ctx ends
// before.
type slowness struct {
	opTimeout time.Duration
	opened    atomic.Int64 // connections that were begun
}

func (s *slowness) wait(ctx context.Context) error {
	s.opened.Add(1)
	select {
	case <-time.After(s.opTimeout * 6 / 5):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *slowness) onConnect(ctx context.Context, _ *redis.Conn) error { return s.wait(ctx) }

func (s *slowness) credentials(ctx context.Context) (user, password string, err error) {
	return "", "", s.wait(ctx)
}

// TestSlowConnectionIsFoundByALaterCall: it is finished in the background, whatever the client, so
// a few calls fail and those after them succeed. The number of connections that this takes is
// small.
func TestSlowConnectionIsFoundByALaterCall(t *testing.T) {
	t.Parallel()
	server := redistest.StartTCP(t)
	for name, connect := range map[string]func(t *testing.T, s *slowness) redis.UniversalClient{
		"OnConnect": func(_ *testing.T, s *slowness) redis.UniversalClient {
			o := server.Options()
			o.OnConnect = s.onConnect
			return redis.NewClient(o)
		},
		"credentials, heeds deadlines": func(_ *testing.T, s *slowness) redis.UniversalClient {
			o := server.Options()
			o.CredentialsProviderContext, o.ContextTimeoutEnabled = s.credentials, true
			return redis.NewClient(o)
		},
		"cluster": func(t *testing.T, s *slowness) redis.UniversalClient {
			_, addrs := startCluster(t)
			return redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, OnConnect: s.onConnect})
		},
		"sentinels": func(t *testing.T, s *slowness) redis.UniversalClient {
			o := startReplicated(t).options
			o.OnConnect = s.onConnect
			return redis.NewFailoverClient(&o)
		},
		"ring": func(_ *testing.T, s *slowness) redis.UniversalClient {
			return redis.NewRing(&redis.RingOptions{
				Addrs: map[string]string{"a": server.Addr()}, OnConnect: s.onConnect, HeartbeatFn: alwaysUp,
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &slowness{opTimeout: time.Second}
			client := connect(t, s)
			t.Cleanup(func() { _ = client.Close() })
			l := locktest.SetNXPX(t, client, redlatch.WithOpTimeout(s.opTimeout))
			var lock *redlatch.Lock
			tries, err := 0, error(nil)
			for begin := time.Now(); lock == nil; tries++ {
				require.Less(t, tries, 10, "it took %v: %v", time.Since(begin), err)
				lock, err = l.TryLock(t.Context(), "k")
			}
			t.Log(tries, "tries,", s.opened.Load(), "connections")
			require.NoError(t, lock.Unlock(t.Context()))
			require.LessOrEqual(t, s.opened.Load(), int64(6*tries), "of which some are to a sentinel")
		})
	}
}
