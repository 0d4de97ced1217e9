package redlatchotel_test

import (
	"testing"
	"testing/synctest"
	"time"

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

// TestOldestHoldIsMeasuredWhileItLasts: it is the age of the oldest lock that is held, for each kind of key, and 0 when none is
// held any more.
func TestOldestHoldIsMeasuredWhileItLasts(t *testing.T) {
	b := newLab(t)
	synctest.Test(t, func(t *testing.T) {
		hooks, err := redlatchotel.Hooks(append(b.opts, redlatchotel.WithKeyAttribute(func(key string) string { return key[:1] }))...)
		require.NoError(t, err)
		require.Empty(t, b.oldest(t))
		event := func(key string, fence uint64) redlatch.Event {
			return redlatch.Event{Strategy: "setnxpx", Key: key, Fence: fence}
		}
		hooks.Acquired(event("import", 1))
		time.Sleep(time.Hour)
		hooks.Acquired(event("index", 2))
		hooks.Acquired(event("report", 3))
		time.Sleep(time.Minute)
		require.Equal(t, map[string]time.Duration{"i": time.Hour + time.Minute, "r": time.Minute}, b.oldest(t))
		hooks.Released(event("import", 1))
		hooks.Lost(event("report", 3))
		require.Equal(t, map[string]time.Duration{"i": time.Minute, "r": 0}, b.oldest(t))
		hooks.Released(event("index", 2))
		require.Equal(t, map[string]time.Duration{"i": 0, "r": 0}, b.oldest(t))
	})
}

// TestOldestHoldForgetsNoEnd: events of one key can come in another order than they happened. No lock that has ended counts as
// held, and none that is held is forgotten.
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
						hooks.Released(event)
					} else {
						hooks.Acquired(event)
						time.Sleep(time.Second)
					}
				}
				require.Equal(t, c.want, b.oldest(t)[""])
			})
		})
	}
}

// TestOldestHoldFollowsLocks: of a real Locker. A lock that nobody unlocks counts until its lease has ended.
func TestOldestHoldFollowsLocks(t *testing.T) {
	t.Parallel()
	b := newLab(t)
	l := b.locker(t, nil, nil)
	lock, err := l.Lock(t.Context(), "k")
	require.NoError(t, err)
	require.Positive(t, b.oldest(t)[""])
	require.NoError(t, lock.Unlock(t.Context()))
	require.Zero(t, b.oldest(t)[""])
	_, err = l.Lock(t.Context(), "left", redlatch.WithTTL(time.Second), redlatch.WithoutRenewal())
	require.NoError(t, err)
	require.Positive(t, b.oldest(t)[""])
	require.Eventually(t, func() bool { return b.oldest(t)[""] == 0 }, 20*time.Second, 10*time.Millisecond)
}
