package sim

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/sim/road"
	"github.com/redlatch/redlatch/sim/server"
)

// TestDistance compares callers who lock and unlock keys of their own over a network with callers
// who send two raw commands, one after the other, through a client with as many connections.
// Virtual time shows nothing but who waits for whom. Others of the client are as fast as beside raw
// commands.
func TestDistance(t *testing.T) {
	for _, trip := range []time.Duration{5 * time.Millisecond, 20 * time.Millisecond} {
		for _, callers := range []int{1, 8, 16} {
			for _, others := range []int{0, 8} {
				t.Run(fmt.Sprintf("%v, %d callers, %d others", trip, callers, others), func(t *testing.T) {
					var pairs, beside [2][]time.Duration
					for i, lock := range []bool{false, true} {
						synctest.Test(t, func(t *testing.T) {
							d := newDistance(t, trip)
							d.work(t, lock, callers, others) // opens the connections
							pairs[i], beside[i] = d.work(t, lock, callers, others)
						})
					}
					require.GreaterOrEqual(t, len(pairs[1]), len(pairs[0])*95/100)
					require.LessOrEqual(t, percentile99(pairs[1]), percentile99(pairs[0])*12/10)
					if others > 0 {
						require.GreaterOrEqual(t, len(beside[1]), len(beside[0])*98/100)
						require.LessOrEqual(t, percentile99(beside[1]), percentile99(beside[0])*11/10)
					}
				})
			}
		}
	}
}

// A distance is a client, far from its server.
type distance struct {
	client *redis.Client
	locker redlatch.Locker
}

func newDistance(t *testing.T, trip time.Duration) *distance {
	t.Helper()
	const addr = "127.0.0.1:6379"
	s := server.New()
	r := road.New(addr, 1, func(c net.Conn) error { return s.Accept(c) })
	r.Delay, r.Jitter = trip/2, trip/20
	client := redis.NewClient(&redis.Options{
		Addr: addr, Dialer: r.Dial, PoolSize: 20, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() {
		_ = client.Close()
		s.Close()
		time.Sleep(time.Minute) // idle goroutines end
	})
	l, err := redlatch.NewSetNXPX(client)
	require.NoError(t, err)
	return &distance{client, l}
}

// work has callers work for a second. It returns how long each pair took, and each command of others.
func (d *distance) work(t *testing.T, lock bool, callers, others int) (pairs, commands []time.Duration) {
	t.Helper()
	end := time.Now().Add(time.Second)
	var mu sync.Mutex
	var wg sync.WaitGroup
	each := func(n int, took *[]time.Duration, f func(ctx context.Context, key string) error) {
		for i := range n {
			wg.Go(func() {
				for begin := time.Now(); begin.Before(end); begin = time.Now() {
					assert.NoError(t, f(t.Context(), fmt.Sprint("k", i)))
					mu.Lock()
					*took = append(*took, time.Since(begin))
					mu.Unlock()
				}
			})
		}
	}
	pair := func(ctx context.Context, key string) error {
		if err := d.client.SetNX(ctx, key, "token", 8*time.Second).Err(); err != nil {
			return err
		}
		return d.client.Del(ctx, key).Err()
	}
	if lock {
		pair = func(ctx context.Context, key string) error {
			k, err := d.locker.Lock(ctx, key)
			if err != nil {
				return err
			}
			return k.Unlock(ctx)
		}
	}
	each(callers, &pairs, pair)
	each(others, &commands, func(ctx context.Context, key string) error { return d.client.Incr(ctx, "n"+key).Err() })
	wg.Wait()
	return pairs, commands
}

func percentile99(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)*99/100]
}
