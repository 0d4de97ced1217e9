package prometheus_test

import (
	"context"
	"fmt"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
)

// countLocks returns hooks that count locks in a registry. All Lockers of a process share one result.
func countLocks(registry prometheus.Registerer) redlatch.Hooks {
	wait := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "lock_wait_seconds", Buckets: prometheus.ExponentialBuckets(0.001, 4, 9)})
	hold := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "lock_hold_seconds", Buckets: prometheus.ExponentialBuckets(0.001, 4, 9)})
	held := prometheus.NewGauge(prometheus.GaugeOpts{Name: "locks_held"})
	losses := prometheus.NewCounter(prometheus.CounterOpts{Name: "lock_losses_total"})
	failed := prometheus.NewCounter(prometheus.CounterOpts{Name: "lock_renewals_failed_total"})
	trouble := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lock_trouble_total"}, []string{"cause"})
	registry.MustRegister(wait, hold, held, losses, failed, trouble)

	ended := func(_ context.Context, e redlatch.Event) {
		held.Dec()
		hold.Observe(e.Elapsed.Seconds())
	}
	return redlatch.Hooks{
		Acquired: func(_ context.Context, e redlatch.Event) {
			held.Inc()
			wait.Observe(e.Elapsed.Seconds())
		},
		Released: ended,
		Lost: func(ctx context.Context, e redlatch.Event) {
			losses.Inc()
			ended(ctx, e)
		},
		RenewFailed: func(context.Context, redlatch.Event) { failed.Inc() },
		Trouble:     func(_ context.Context, e redlatch.Event) { trouble.WithLabelValues(string(e.Cause)).Inc() },
	}
}

// A program counts its locks without OpenTelemetry. One lock is released, one is lost, and one is held. Then Redis fails.
func Example_withoutOpenTelemetry() {
	server := miniredis.NewMiniRedis()
	must(server.Start())
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1})
	defer client.Close()
	ctx := context.Background()

	registry := prometheus.NewRegistry() // in a program, prometheus.DefaultRegisterer, which promhttp.Handler serves
	locker, err := redlatch.NewSetNXPX(client, redlatch.WithHooks(countLocks(registry)))
	must(err)

	for _, key := range []string{"released", "lost", "held"} {
		lock, err := locker.Lock(ctx, key)
		must(err)
		switch key {
		case "released":
			must(lock.Unlock(ctx))
		case "lost":
			server.Del(key)
			fmt.Println(lock.Unlock(ctx) != nil)
		}
	}
	server.SetError("LOADING Redis is loading the dataset in memory")
	_, err = locker.TryLock(ctx, "unavailable")
	fmt.Println(err != nil)

	families, err := registry.Gather()
	must(err)
	for _, family := range families {
		m := family.GetMetric()[0]
		fmt.Println(family.GetName(), m.GetCounter().GetValue()+m.GetGauge().GetValue()+float64(m.GetHistogram().GetSampleCount()))
	}
	// Output:
	// true
	// true
	// lock_hold_seconds 2
	// lock_losses_total 1
	// lock_renewals_failed_total 0
	// lock_trouble_total 1
	// lock_wait_seconds 3
	// locks_held 1
}

// must keeps the example short.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
