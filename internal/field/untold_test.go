package field_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/locktest"
	"github.com/redlatch/redlatch/internal/testing/redistest"
)

// TestKeyIsSharedWithAProcessWithoutAChannel: its user may not PUBLISH, or not SUBSCRIBE, or neither.
// The key changes hands at a quarter of the rate of two processes that may, at least, and neither
// process has more than three times the grants of the other.
func TestKeyIsSharedWithAProcessWithoutAChannel(t *testing.T) {
	t.Parallel()
	for name, rights := range map[string][]string{
		"no PUBLISH": {"-publish"}, "no SUBSCRIBE": {"-subscribe"}, "neither": {"-publish", "-subscribe"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for kind, made := range map[string]func(redis.UniversalClient, ...redlatch.Option) (redlatch.Locker, error){
				"SetNXPX": locktest.Strategies["SetNXPX"], "Write": locktest.Strategies["Write"],
			} {
				s, another := redistest.Start(t), redistest.Start(t)
				full := []string{"~*", "&*", "+@all"}
				user := s.User(t, append(full, rights...)...)
				locker := func(c redis.UniversalClient) redlatch.Locker {
					l, err := made(c, locktest.Patience)
					require.NoError(t, err)
					return l
				}
				equals := []redlatch.Locker{locker(another.Client(t)), locker(another.Client(t))}
				unequals := []redlatch.Locker{locker(s.Client(t)), locker(locktest.Closing(t, redis.NewClient(user)))}
				var control, mixed [2]int64
				var both sync.WaitGroup // at the same time, so that both have the same machine
				both.Go(func() { control = shared(t, equals...) })
				both.Go(func() { mixed = shared(t, unequals...) })
				both.Wait()
				t.Logf("%s: %v grants of both, %v of the one with a channel and the other", kind, control, mixed)
				assert.Greater(t, mixed[0]+mixed[1], (control[0]+control[1])/4, kind)
				assert.Greater(t, mixed[0], mixed[1]/3, kind)
				assert.Greater(t, mixed[1], mixed[0]/3, kind)
			}
		})
	}
}

// shared returns how often two processes have been granted a key in two seconds, by four callers each
// that hold it for a millisecond.
func shared(t *testing.T, lockers ...redlatch.Locker) (grants [2]int64) {
	ctx, stop := context.WithCancel(t.Context())
	var counts [2]atomic.Int64
	var crowd sync.WaitGroup
	for i, l := range lockers {
		for range 4 {
			crowd.Go(func() {
				for ctx.Err() == nil {
					_ = redlatch.Do(ctx, l, t.Name(), func(context.Context, *redlatch.Lock) error {
						time.Sleep(time.Millisecond)
						counts[i].Add(1)
						return nil
					})
				}
			})
		}
	}
	time.Sleep(2 * time.Second) // they learn what the other one cannot do
	for i := range counts {
		counts[i].Store(0)
	}
	time.Sleep(2 * time.Second)
	for i := range counts {
		grants[i] = counts[i].Load()
	}
	stop()
	crowd.Wait()
	return grants
}
