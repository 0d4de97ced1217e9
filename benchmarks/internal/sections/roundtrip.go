package sections

import (
	"context"
	"testing"
	"time"

	"github.com/redlatch/redlatch/benchmarks/internal/peers"
	"github.com/redlatch/redlatch/benchmarks/internal/report"
	"github.com/redlatch/redlatch/internal/testing/faultproxy"
)

// roundTrip measures the cost of a free lock with a longer way to Redis.
func roundTrip() Section {
	return Section{
		Name:  "roundtrip",
		Title: "A longer way to Redis",
		About: "One goroutine locks and unlocks a free key through a proxy that holds each reply back for so long. " +
			"A dash says that no lock was ever granted.",
		Metrics: []report.Metric{
			{Key: "lock50", Title: "lock, median", Unit: report.Seconds},
			{Key: "lock99", Title: "p99", Unit: report.Seconds},
			{Key: "unlock50", Title: "unlock, median", Unit: report.Seconds},
			{Key: "unlock99", Title: "p99", Unit: report.Seconds},
			{Key: "failed", Title: "failed", Unit: report.Count},
		},
		prepare: func(tb testing.TB, plan Plan) []scenario {
			n := start(tb)
			var cases []scenario
			for _, added := range []time.Duration{time.Millisecond, 20 * time.Millisecond} {
				proxy := faultproxy.New(tb, n.server.Network(), n.server.Addr())
				proxy.Delay(added)
				c := scenario{name: added.String()}
				for _, p := range peers.All() {
					c.entries = append(c.entries, entry{p.Name, func(ctx context.Context) (report.Sample, error) {
						if err := n.forget(ctx); err != nil {
							return nil, err
						}
						locker, err := p.Open(peers.Target{Addr: proxy.Addr()})
						if err != nil {
							return nil, err
						}
						defer locker.Close()
						// Enough for some fifty pairs: p99 is then the slowest.
						d := max(plan.Duration, min(100*added, 4*plan.Duration))
						t, err := loop{locker: locker, goroutines: 1, duration: d, patience: time.Second}.run(ctx)
						if err != nil {
							return nil, err
						}
						return t.latencies(), nil
					}})
				}
				cases = append(cases, c)
			}
			return cases
		},
	}
}

// latencies returns what a lock and an unlock took.
func (t *timings) latencies() report.Sample {
	return report.Sample{
		"lock50":   t.lock.Quantile(0.5),
		"lock99":   t.lock.Quantile(0.99),
		"unlock50": t.unlock.Quantile(0.5),
		"unlock99": t.unlock.Quantile(0.99),
		"failed":   float64(t.failed),
	}
}
