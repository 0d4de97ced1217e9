package redlatchotel_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/redlatch/redlatch"
	redlatchotel "github.com/redlatch/redlatch/otel"
)

// oldest returns the metric of the oldest hold, by the kind of key.
func (b *lab) oldest(t *testing.T) map[string]time.Duration {
	t.Helper()
	m, ok := b.metrics(t)["redlatch.lock.hold.oldest"]
	if !ok {
		return nil
	}
	require.Equal(t, "s", m.Unit)
	ages := make(map[string]time.Duration)
	for _, p := range m.Data.(metricdata.Gauge[float64]).DataPoints {
		kind, _ := p.Attributes.Value(attribute.Key("redlatch.key"))
		ages[kind.AsString()] = time.Duration(p.Value * float64(time.Second))
	}
	return ages
}

// TestOldestHoldIsMeasuredWhileItLasts: it is the age of the oldest lock that is held, for each
// kind of key, and 0 when none is held any more.
func TestOldestHoldIsMeasuredWhileItLasts(t *testing.T) {
	b := newLab(t)
	synctest.Test(t, func(t *testing.T) {
		hooks, err := redlatchotel.Hooks(append(b.opts, redlatchotel.WithKeyAttribute(func(key string) string { return key[:1] }))...)
		require.NoError(t, err)
		require.Empty(t, b.oldest(t))
		event := func(key string, fence uint64) redlatch.Event {
			return redlatch.Event{Strategy: "setnxpx", Key: key, Fence: fence}
		}
		hooks.Acquired(t.Context(), event("import", 1))
		time.Sleep(time.Hour)
		hooks.Acquired(t.Context(), event("index", 2))
		hooks.Acquired(t.Context(), event("report", 3))
		time.Sleep(time.Minute)
		require.Equal(t, map[string]time.Duration{"i": time.Hour + time.Minute, "r": time.Minute}, b.oldest(t))
		hooks.Released(t.Context(), event("import", 1))
		hooks.Lost(t.Context(), event("report", 3))
		require.Equal(t, map[string]time.Duration{"i": time.Minute, "r": 0}, b.oldest(t))
		hooks.Released(t.Context(), event("index", 2))
		require.Equal(t, map[string]time.Duration{"i": 0, "r": 0}, b.oldest(t))
	})
}

// TestOldestHoldForgetsNoEnd: events of one key can come in another order than they happened. No
// lock that has ended counts as held, and none that is held is forgotten.
func TestOldestHoldForgetsNoEnd(t *testing.T) {
	type step struct {
		end   bool
		fence uint64
	}
	for name, c := range map[string]struct {
		steps []step
		want  time.Duration
	}{
		"lost before Acquired was called":              {[]step{{true, 7}, {false, 7}}, 0},
		"released after the next was acquired":         {[]step{{false, 7}, {false, 8}, {true, 7}}, time.Second},
		"the same, without fences":                     {[]step{{false, 0}, {false, 0}, {true, 0}}, time.Second},
		"two handles, the adopted one is released":     {[]step{{false, 7}, {false, 8}, {true, 8}}, 2 * time.Second},
		"lost before Acquired, and then the next lock": {[]step{{true, 7}, {false, 7}, {false, 8}}, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			b := newLab(t)
			synctest.Test(t, func(t *testing.T) {
				hooks, err := redlatchotel.Hooks(b.opts...)
				require.NoError(t, err)
				for _, s := range c.steps {
					event := redlatch.Event{Strategy: "setnxpx", Key: "k", Fence: s.fence}
					if s.end {
						hooks.Released(t.Context(), event)
					} else {
						hooks.Acquired(t.Context(), event)
						time.Sleep(time.Second)
					}
				}
				require.Equal(t, c.want, b.oldest(t)[""])
			})
		})
	}
}

// TestOldestHoldFollowsLocks: of a real Locker. A lock that nobody unlocks counts until its lease
// has ended.
func TestOldestHoldFollowsLocks(t *testing.T) {
	t.Parallel()
	b := newLab(t)
	l := b.locker(t, nil, nil)
	lock, err := l.Lock(t.Context(), "k")
	require.NoError(t, err)
	require.Positive(t, b.oldest(t)[""])
	require.NoError(t, lock.Unlock(t.Context()))
	require.Zero(t, b.oldest(t)[""])
	_, err = l.Lock(t.Context(), "left", redlatch.WithTTL(4*time.Second), redlatch.WithoutRenewal())
	require.NoError(t, err)
	require.Positive(t, b.oldest(t)[""])
	require.Eventually(t, func() bool { return b.oldest(t)[""] == 0 }, time.Minute, 10*time.Millisecond)
}

// TestWaitsAreMeasuredWhileTheyLast: how many calls of Lock wait now, of all Lockers, and how long
// the oldest has waited.
func TestWaitsAreMeasuredWhileTheyLast(t *testing.T) {
	b := newLab(t)
	lock, err := b.locker(t, nil, nil).TryLock(t.Context(), "k")
	require.NoError(t, err)
	now := func() (waiting int64, oldest float64) {
		all := b.metrics(t)
		for _, p := range all["redlatch.lock.waiting"].Data.(metricdata.Sum[int64]).DataPoints {
			waiting += p.Value
		}
		for _, p := range all["redlatch.lock.wait.oldest"].Data.(metricdata.Gauge[float64]).DataPoints {
			oldest = max(oldest, p.Value)
		}
		return waiting, oldest
	}
	var waits sync.WaitGroup
	var begun time.Time
	for i := range 2 { // of two Lockers
		l := b.locker(t, nil, nil)
		waits.Go(func() {
			other, err := l.Lock(t.Context(), "k")
			if assert.NoError(t, err) {
				assert.NoError(t, other.Unlock(t.Context()))
			}
		})
		require.Eventually(t, func() bool { waiting := b.waiting(t); return waiting == int64(i+1) }, time.Minute, time.Millisecond)
		if i == 0 {
			begun = time.Now()
			time.Sleep(50 * time.Millisecond)
		}
	}
	least := time.Since(begun).Seconds()
	waiting, oldest := now()
	require.Equal(t, int64(2), waiting)
	require.GreaterOrEqual(t, oldest, least)
	require.NoError(t, lock.Unlock(t.Context()))
	waits.Wait()
	waiting, oldest = now()
	require.Zero(t, waiting)
	require.Zero(t, oldest)
}

// waiting returns how many calls wait.
func (b *lab) waiting(t *testing.T) (n int64) {
	t.Helper()
	if sum, ok := b.metrics(t)["redlatch.lock.waiting"].Data.(metricdata.Sum[int64]); ok {
		for _, p := range sum.DataPoints {
			n += p.Value
		}
	}
	return n
}

// TestCountersBeginAtZero: with the first grant, so that the first loss is an increase.
func TestCountersBeginAtZero(t *testing.T) {
	b := newLab(t)
	lock, err := b.locker(t, nil, nil).TryLock(t.Context(), "k")
	require.NoError(t, err)
	points := func() map[string]int64 {
		values := make(map[string]int64)
		for _, p := range b.metrics(t)["redlatch.lock.losses"].Data.(metricdata.Sum[int64]).DataPoints {
			ended, _ := p.Attributes.Value(outcome)
			values[ended.AsString()] = p.Value
		}
		return values
	}
	require.Equal(t, map[string]int64{"lost": 0, "max_hold": 0}, points())
	b.server.Del("k")
	require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrLost)
	require.Equal(t, map[string]int64{"lost": 1, "max_hold": 0}, points())
}

// TestWaitsAndHoldsOfLeadAreMarked: they last for hours by design, so alerts must be able to leave
// them out. What was counted up with the attribute is counted down with it.
func TestWaitsAndHoldsOfLeadAreMarked(t *testing.T) {
	b := newLab(t)
	lead := attribute.Bool("redlatch.lead", true)
	l := b.locker(t, nil, nil)
	holder, err := l.TryLock(t.Context(), "k")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { // ends with ctx
		over <- redlatch.Lead(ctx, l, "k", func(ctx context.Context, _ *redlatch.Lock) error {
			<-ctx.Done()
			return nil
		})
	}()
	is := func(n int64, name string, attrs ...attribute.KeyValue) {
		t.Helper()
		require.Eventually(t, func() bool { return b.count(t, name, attrs...) == n }, time.Minute, time.Millisecond, name)
	}
	is(1, "redlatch.lock.waiting", lead)
	is(0, "redlatch.lock.waiting")
	is(1, "redlatch.lock.refusals", setNXPX, lead)
	require.Zero(t, b.age(t, "redlatch.lock.wait.oldest"))
	require.Positive(t, b.age(t, "redlatch.lock.wait.oldest", lead))
	require.NoError(t, holder.Unlock(t.Context()))
	is(1, "redlatch.lock.held", setNXPX, lead)
	is(0, "redlatch.lock.held", setNXPX)
	is(0, "redlatch.lock.waiting", lead)
	require.Positive(t, b.age(t, "redlatch.lock.hold.oldest", setNXPX, lead))
	require.Zero(t, b.age(t, "redlatch.lock.hold.oldest", setNXPX))
	cancel()
	require.ErrorIs(t, <-over, context.Canceled)
	is(0, "redlatch.lock.held", setNXPX, lead)
	is(1, "redlatch.lock.hold.duration", setNXPX, lead, outcome.String("released"))
	var begun []string
	for _, p := range b.metrics(t)["redlatch.lock.losses"].Data.(metricdata.Sum[int64]).DataPoints {
		begun = append(begun, p.Attributes.Encoded(attribute.DefaultEncoder()))
	}
	require.ElementsMatch(t, begun, []string{
		"redlatch.lead=true,redlatch.outcome=lost,redlatch.strategy=setnxpx",
		"redlatch.lead=true,redlatch.outcome=max_hold,redlatch.strategy=setnxpx",
		"redlatch.outcome=lost,redlatch.strategy=setnxpx",
		"redlatch.outcome=max_hold,redlatch.strategy=setnxpx",
	})
}

// age returns the value of a gauge with these attributes, or 0.
func (b *lab) age(t *testing.T, name string, attrs ...attribute.KeyValue) float64 {
	t.Helper()
	want := attribute.NewSet(attrs...)
	for _, p := range b.metrics(t)[name].Data.(metricdata.Gauge[float64]).DataPoints {
		if p.Attributes.Equals(&want) {
			return p.Value
		}
	}
	return 0
}
