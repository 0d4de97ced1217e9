package sections

import (
	"context"
	"math"
	"regexp"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/benchmarks/internal/measure"
	"github.com/redlatch/redlatch/benchmarks/internal/peers"
	"github.com/redlatch/redlatch/benchmarks/internal/report"
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

// fenced grants a lock for each fence. Then it never grants again.
type fenced struct{ fences chan uint64 }

func (f fenced) Lock(ctx context.Context, _ string) (peers.Lock, error) {
	select {
	case fence := <-f.fences:
		return fencedLock{fence: fence}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (fenced) Close() error { return nil }

type fencedLock struct {
	fakeLock
	fence uint64
}

func (k fencedLock) Fence() uint64 { return k.fence }

// fight has c fight for that long, and returns the figures. lockers are those of its clients, in
// order.
func fight(t *testing.T, c crowd, d time.Duration, lockers ...peers.Locker) report.Sample {
	f := &fray{crowd: c}
	require.NoError(t, f.open(func(peers.Target) (peers.Locker, error) { return lockers[len(f.lockers)], nil }))
	require.Len(t, f.lockers, len(lockers))
	ctx, cancel := context.WithCancel(t.Context())
	f.fight(ctx)
	<-time.After(d)
	waiting := f.end()
	cancel()
	f.wg.Wait()
	return f.sample(waiting, measure.Usage{Direct: 4, Commands: 6})
}

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
		one := fake{limit: 1, given: new(atomic.Int64)}
		got := fight(t, crowd{sides: []side{{clients: 2, goroutines: 2}}, hold: 10 * time.Millisecond}, 3*time.Second, one, one)
		require.Equal(t, 3.0, got["longest"])
		require.Equal(t, 0.0, got["granted"], "the only wait that ended")
		require.Equal(t, 3.0, got["never"])
		require.Equal(t, 0.25, got["jain"])
		require.Equal(t, 1.0, got["owners"])
		require.Equal(t, 0.0, got["failed"])
		require.InDelta(t, 1.0/3, got["rate"], 1e-9)
		require.Equal(t, 4.0, got["direct"])
		require.Equal(t, 6.0, got["commands"])
	})
}

func TestWaitsOfNobodyHaveNoLongest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		none := fake{given: new(atomic.Int64)}
		got := fight(t, crowd{sides: []side{{clients: 1, goroutines: 2}}}, time.Second, none)
		require.True(t, math.IsNaN(got["granted"]))
		require.Equal(t, 1.0, got["longest"])
		require.Equal(t, 2.0, got["never"])
	})
}

func TestOwnersAtOnceAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unlimited := fake{limit: 1 << 30, given: new(atomic.Int64)} // excludes nobody
		got := fight(t, crowd{sides: []side{{clients: 1, goroutines: 3}}, hold: time.Second}, 1500*time.Millisecond, unlimited)
		require.Equal(t, 3.0, got["owners"])
	})
}

func TestCallThatGivesUpIsNoFailureAndItsCallerStillWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := fake{limit: 1, given: new(atomic.Int64)}
		impatient := crowd{sides: []side{{clients: 1, goroutines: 2}}, patience: 20 * time.Millisecond}
		got := fight(t, impatient, 3*time.Second, one)
		require.Greater(t, one.given.Load(), int64(300), "calls")
		require.Equal(t, 3.0, got["longest"])
		require.Equal(t, 1.0, got["never"])
		require.Equal(t, 0.0, got["failed"])
	})
}

func TestFencesThatDoNotGrowAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fences := make(chan uint64, 5)
		for _, fence := range []uint64{1, 3, 2, 4, 4} {
			fences <- fence
		}
		alone := crowd{sides: []side{{clients: 1, goroutines: 1}}}
		require.Equal(t, 2.0, fight(t, alone, time.Second, fenced{fences})["disorder"])
		one := fake{limit: 1, given: new(atomic.Int64)}
		require.True(t, math.IsNaN(fight(t, alone, time.Second, one)["disorder"]), "locks without fences")
	})
}

func TestSidesAreComparedByTheGrantsOfAGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lockers []peers.Locker
		for _, limit := range []int64{6, 1, 2} {
			lockers = append(lockers, fake{limit: limit, given: new(atomic.Int64)})
		}
		unlike := crowd{sides: []side{{clients: 1, goroutines: 2}, {clients: 2, goroutines: 1}}}
		require.Equal(t, 2.0, fight(t, unlike, time.Second, lockers...)["sides"])
		lockers[0].(fake).given.Store(0) // the others have no lock left
		require.Equal(t, 6.0, fight(t, unlike, time.Second, lockers...)["sides"], "a side that got nothing counts as if it had one")
		alike := crowd{sides: unlike.sides[:1]}
		require.True(t, math.IsNaN(fight(t, alike, time.Second, lockers[0])["sides"]), "one side")
	})
}

func TestKeysThatAreLeftAreCountedWithoutTheRegisterOfTheFences(t *testing.T) {
	n := start(t)
	require.NoError(t, n.admin.Set(t.Context(), "redlatch:fence", 1, 0).Err())
	require.NoError(t, n.admin.Set(t.Context(), "released late", 1, 20*time.Millisecond).Err())
	left, err := n.left(t.Context())
	require.NoError(t, err)
	require.Zero(t, left)
	require.NoError(t, n.admin.Set(t.Context(), "hot", 1, 0).Err())
	left, err = n.left(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, left)
}

func TestOnlyTheEntriesThatMatchAreMeasured(t *testing.T) {
	cases := func() []scenario {
		return []scenario{{"No hold", "4×64", []entry{{peer: "redlatch"}, {peer: "redsync"}}}, {"", "14×64", []entry{{peer: "redlatch"}}}}
	}
	require.Equal(t, cases(), Plan{}.choose(cases()))
	got := Plan{Only: regexp.MustCompile("^No hold, 4x64, redlatch$")}.choose(cases())
	require.Equal(t, []entry{{peer: "redlatch"}}, got[0].entries)
	require.Empty(t, got[1].entries)
}

func TestCrowdIsWatchedUntilAQueueHasServedEverybody(t *testing.T) {
	d := 500 * time.Millisecond
	require.Equal(t, 2*time.Second, crowd{sides: []side{{clients: 8, goroutines: 4}}}.turns(d))
	big := crowd{sides: []side{{clients: 256, goroutines: 3}, {clients: 1, goroutines: 256}}, hold: 5 * time.Millisecond}
	require.Greater(t, big.turns(d), 1024*big.hold)
	require.Equal(t, 160*time.Millisecond, big.turns(10*time.Millisecond))
}

func TestPairsOfADistanceAreCountedInRoundTrips(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fake{pause: 10 * time.Millisecond, limit: 1 << 30, given: new(atomic.Int64)}
		got, err := distantLoop(t.Context(), f, 2, Plan{Duration: 101 * time.Millisecond}, 5*time.Millisecond)
		require.NoError(t, err)
		require.InDelta(t, 0.01, got["pair50"], 0.0001)
		require.InDelta(t, 2, got["trips"], 0.02)
		require.InDelta(t, 200, got["rate"], 0.01)
		require.Zero(t, got["failed"])
		require.Equal(t, int64(2*(1+11+1+41)), f.given.Load(), "for -d, and then for four times that")
	})
}

func TestMedianIsComparedWithThatOfTheRawCommandsOfItsCase(t *testing.T) {
	table := new(report.Table)
	for _, row := range []struct {
		group, name, peer string
		median            float64
	}{
		{"1 ms", "1", "redlatch", 6},
		{"1 ms", "1", "two raw commands", 2},
		{"1 ms", "16", "two raw commands", 3},
		{"1 ms", "16", "redlatch", 3},
		{"1 ms", "16", "rueidislock", math.NaN()},
		{"quorum", "16", "redlatch", 3},
	} {
		table.Rows = append(table.Rows, report.Row{Group: row.group, Case: row.name, Peer: row.peer})
		table.Rows[len(table.Rows)-1].Add(report.Sample{"pair50": row.median})
	}
	compareWithRaw(table)
	var ratios []float64
	for _, row := range table.Rows {
		ratios = append(ratios, row.Figures["ratio"].Median)
	}
	require.Equal(t, []float64{3, 1, 1, 1, 0, 0}, ratios)
}

func TestThousandsAreSetApart(t *testing.T) {
	require.Equal(t, "999", thousands(999))
	require.Equal(t, "10,000", thousands(10_000))
	require.Equal(t, "1,002,003", thousands(1_002_003))
}
