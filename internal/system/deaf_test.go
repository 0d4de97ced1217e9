package system_test

import (
	"context"
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

// deaf are processes that messages do not reach, or not always, or that cannot send them.
var deaf = map[string]func(t *testing.T, s *redistest.Server) connector{
	"no PUBLISH":   without("-publish"),
	"no SUBSCRIBE": without("-subscribe"),
	"no PUBSUB":    without("-pubsub"),
	"a Ring": func(_ *testing.T, s *redistest.Server) connector {
		return toRing(map[string]string{"a": s.Addr()}, nil)
	},
	"cut every 100 ms": cutEvery(100 * time.Millisecond),
	"cut every 300 ms": cutEvery(300 * time.Millisecond),
	"cut every second": cutEvery(time.Second),
}

// without connects as a user who has all rights but one.
func without(right string) func(t *testing.T, s *redistest.Server) connector {
	return func(t *testing.T, s *redistest.Server) connector {
		user := s.User(t, "~*", "allchannels", "+@all", right)
		return func(t *testing.T) redis.UniversalClient {
			o := *user
			return as(t, &o)
		}
	}
}

// cutEvery connects through a proxy that cuts the subscription again and again.
func cutEvery(d time.Duration) func(t *testing.T, s *redistest.Server) connector {
	return func(_ *testing.T, s *redistest.Server) connector {
		return func(t *testing.T) redis.UniversalClient {
			p := faultproxy.New(t, s.Network(), s.Addr())
			ctx, cancel := context.WithCancel(t.Context())
			var cutting sync.WaitGroup
			cutting.Go(func() {
				each := time.NewTicker(d)
				defer each.Stop()
				for ctx.Err() == nil {
					select {
					case <-each.C:
						p.CutSubscribed()
					case <-ctx.Done():
					}
				}
			})
			client := p.Client(t)
			t.Cleanup(func() {
				cancel()
				cutting.Wait()
			})
			return client
		}
	}
}

// TestDeafProcessesAreServedAlike: two processes of a kind lock one key again and again, alone or beside two others that
// lack nothing. All are served, nobody waits for long, and of two that are alike none is starved.
func TestDeafProcessesAreServedAlike(t *testing.T) {
	t.Parallel()
	for name, kind := range deaf {
		for _, c := range []struct {
			group  string
			open   func(*testing.T, redis.UniversalClient, ...redlatch.Option) redlatch.Locker
			others int
		}{
			{"alone", locktest.SetNXPX, 0},
			{"beside others", locktest.SetNXPX, 2},
			{"with a semaphore", locktest.Mutex, 2},
		} {
			t.Run(name+" "+c.group, func(t *testing.T) {
				t.Parallel()
				s := redistest.StartTCP(t)
				connect := kind(t, s)
				var lockers []redlatch.Locker
				for range 2 {
					lockers = append(lockers, c.open(t, connect(t)))
				}
				for range c.others {
					lockers = append(lockers, c.open(t, s.Client(t)))
				}
				shares := compete(t, lockers)
				for i := 0; i < len(shares); i += 2 {
					a, b := &shares[i], &shares[i+1]
					t.Logf("%d and %d grants, longest waits %v and %v", a.grants, b.grants, a.longest, b.longest)
					require.Positive(t, min(a.grants, b.grants))
					require.GreaterOrEqual(t, 4*min(a.grants, b.grants), max(a.grants, b.grants))
					require.LessOrEqual(t, max(a.longest, b.longest), 7*time.Second) // on a machine with 34 other crowds
				}
			})
		}
	}
}

// A share is what the callers of one Locker got.
type share struct {
	mu      sync.Mutex // guards the fields below
	grants  int
	longest time.Duration // wait, also one without success
}

// compete has two callers of each Locker lock k for 5 ms, again and again for some seconds.
func compete(t *testing.T, lockers []redlatch.Locker) []share {
	ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second)
	defer cancel()
	shares := make([]share, len(lockers))
	var wg sync.WaitGroup
	for i, l := range lockers {
		got := &shares[i]
		for range 2 {
			wg.Go(func() {
				for ctx.Err() == nil {
					begin := time.Now()
					lock, err := l.Lock(ctx, "k")
					got.mu.Lock()
					got.longest = max(got.longest, time.Since(begin))
					if err == nil {
						got.grants++
					}
					got.mu.Unlock()
					if err == nil {
						<-time.After(5 * time.Millisecond)
						err = lock.Unlock(t.Context())
					}
					if err != nil && ctx.Err() == nil {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
	return shares
}
