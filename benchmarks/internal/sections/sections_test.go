package sections

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/benchmarks/internal/measure"
	"github.com/redlatch/redlatch/benchmarks/internal/peers"
)

// fake grants limit locks, each after a pause. Then it never grants again.
type fake struct {
	pause time.Duration
	limit int64
	given *atomic.Int64
}

func (f fake) Lock(ctx context.Context, _ string) (peers.Lock, error) {
	if f.given.Add(1) > f.limit {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	<-time.After(f.pause)
	return fakeLock{}, nil
}

func (fake) Close() error { return nil }

type fakeLock struct{}

func (fakeLock) Unlock(context.Context) error { return nil }

func TestLockThatNeverReturnsIsOneFailureAndStretchesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fake{pause: 10 * time.Millisecond, limit: 4, given: new(atomic.Int64)} // one for the warm-up
		got, err := loop{locker: f, goroutines: 1, duration: 100 * time.Millisecond, patience: time.Second}.run(t.Context())
		require.NoError(t, err)
		require.Equal(t, 3, got.pair.Count())
		require.Equal(t, 1, got.failed)
		require.Equal(t, 100*time.Millisecond, got.elapsed)
		require.InDelta(t, 0.01, got.lock.Quantile(0.5), 0.0001)
	})
}

func TestPairThatOutlastsTheMeasurementCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fake{pause: 5 * time.Second, limit: 100, given: new(atomic.Int64)}
		got, err := loop{locker: f, goroutines: 2, duration: time.Second, patience: time.Minute}.run(t.Context())
		require.NoError(t, err)
		require.Equal(t, 2, got.pair.Count())
		require.Zero(t, got.failed)
		require.Equal(t, 5*time.Second, got.elapsed)
	})
}

func TestWaitThatGoesOnAtTheEndCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := crowd{clients: 2, goroutines: 2, hold: 10 * time.Millisecond}
		f := newFray(c)
		given := new(atomic.Int64)
		for range c.clients {
			f.lockers = append(f.lockers, fake{limit: 1, given: given})
		}
		ctx, cancel := context.WithCancel(t.Context())
		f.fight(ctx)
		<-time.After(3 * time.Second)
		waiting := f.end()
		cancel()
		f.wg.Wait()
		got := f.sample(waiting, measure.Usage{Direct: 4, Commands: 6})
		require.Equal(t, 3.0, got["longest"])
		require.Equal(t, 3.0, got["never"])
		require.Equal(t, 0.25, got["jain"])
		require.Equal(t, 1.0, got["owners"])
		require.Equal(t, 0.0, got["failed"])
		require.InDelta(t, 1.0/3, got["rate"], 1e-9)
		require.Equal(t, 4.0, got["direct"])
		require.Equal(t, 6.0, got["commands"])
	})
}

func TestOwnersAtOnceAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFray(crowd{clients: 1, goroutines: 3, hold: time.Second})
		f.lockers = []peers.Locker{fake{limit: 1 << 30, given: new(atomic.Int64)}} // excludes nobody
		ctx, cancel := context.WithCancel(t.Context())
		f.fight(ctx)
		<-time.After(1500 * time.Millisecond)
		waiting := f.end()
		cancel()
		f.wg.Wait()
		require.Equal(t, 3.0, f.sample(waiting, measure.Usage{})["owners"])
	})
}

func TestCrowdIsWatchedUntilAQueueHasServedEverybody(t *testing.T) {
	d := 500 * time.Millisecond
	require.Equal(t, 2*time.Second, crowd{clients: 8, goroutines: 4}.turns(d))
	big := crowd{clients: 256, goroutines: 4, hold: 5 * time.Millisecond}
	require.Greater(t, big.turns(d), 1024*big.hold)
	require.Equal(t, 160*time.Millisecond, big.turns(10*time.Millisecond))
}

func TestThousandsAreSetApart(t *testing.T) {
	require.Equal(t, "999", thousands(999))
	require.Equal(t, "10,000", thousands(10_000))
	require.Equal(t, "1,002,003", thousands(1_002_003))
}
