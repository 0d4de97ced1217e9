package behavior_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/faultproxy"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// farAway returns clients of n servers, over links that can be slow, with open connections: with a handshake over such a link
// every command would be too late.
func farAway(t *testing.T, n int) (direct []*redis.Client, clients []redis.UniversalClient, links []*faultproxy.Proxy) {
	t.Helper()
	for range n {
		s := redistest.Start(t)
		p := faultproxy.New(t, s.Network(), s.Addr())
		client := p.Client(t)
		var conns []*redis.Conn
		for range 10 {
			conns = append(conns, client.Conn())
			require.NoError(t, conns[len(conns)-1].Ping(t.Context()).Err())
		}
		for _, c := range conns {
			require.NoError(t, c.Close())
		}
		direct, clients, links = append(direct, s.Client(t)), append(clients, client), append(links, p)
	}
	return direct, clients, links
}

// TestSlowLinksGrant: the round trip to each node of a quorum is more than half of the op timeout. What an attempt without a
// reply has left under way does not hold up the next one.
func TestSlowLinksGrant(t *testing.T) {
	t.Parallel()
	_, clients, links := farAway(t, 3)
	l, err := redlatch.NewRedlock(clients, redlatch.WithOpTimeout(500*time.Millisecond))
	require.NoError(t, err)
	require.NoError(t, locktest.LockSoon(t, l, "warm").Unlock(t.Context()))
	granted, delay := 0, 600*time.Millisecond // longer than the timeout at first
	for i := range 22 {
		if i == 2 {
			delay = 300 * time.Millisecond
		}
		for _, p := range links {
			p.Delay(delay)
		}
		lock, err := l.TryLock(t.Context(), fmt.Sprint("k", i%5))
		if err == nil {
			granted++
			_ = lock.Unlock(t.Context())
		}
	}
	require.GreaterOrEqual(t, granted, 18, "of 20")
}

// TestHeldKeyBehindASlowLinkIsNoOutage: a key is held all the time. Callers of a process wait for it for little longer than a
// round trip. Their errors say that the key is held.
func TestHeldKeyBehindASlowLinkIsNoOutage(t *testing.T) {
	t.Parallel()
	for name, strategy := range everyStrategy {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			direct, clients, links := farAway(t, 1)
			holder, err := strategy(direct[0], longTTL)
			require.NoError(t, err)
			mustLock(t, holder, "k")
			l, err := strategy(clients[0].(*redis.Client), redlatch.WithOpTimeout(time.Second))
			require.NoError(t, err)
			require.NoError(t, locktest.LockSoon(t, l, "warm").Unlock(t.Context()))
			links[0].Delay(600 * time.Millisecond)
			var callers sync.WaitGroup
			for range 60 {
				callers.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second+rand.N(time.Second))
					defer cancel()
					_, err := l.Lock(ctx, "k")
					if !errors.Is(err, redlatch.ErrNotAcquired) || errors.Is(err, redlatch.ErrUnavailable) {
						t.Error(err)
					}
				})
				<-time.After(40 * time.Millisecond) // the callers come one after the other
			}
			callers.Wait()
		})
	}
}
