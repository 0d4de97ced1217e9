package sections

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redlatch/redlatch/benchmarks/internal/peers"
	"github.com/redlatch/redlatch/benchmarks/internal/report"
)

// pairs measures the cost of a lock that nobody else wants.
func pairs() Section {
	return Section{
		Name:  "pairs",
		Title: "Lock and unlock a free key",
		About: "Each goroutine locks and unlocks a key of its own through one client that all share. " +
			"rueidislock has a client of its own, which pipelines always: it is the same one in the first two tables. " +
			"In the last table, redlatch sends its commands over a plain client of go-redis, or over other clients.",
		Metrics: []report.Metric{
			{Key: "rate", Title: "pairs/s", Unit: report.Rate},
			{Key: "client", Title: "client CPU a pair", Unit: report.Seconds},
			{Key: "allocs", Title: "allocations a pair", Unit: report.Count},
			{Key: "bytes", Title: "bytes a pair", Unit: report.Bytes},
			{Key: "pair50", Title: "a pair, median", Unit: report.Seconds},
			{Key: "pair99", Title: "p99", Unit: report.Seconds},
			{Key: "redis", Title: "Redis CPU a pair", Unit: report.Seconds},
			{Key: "failed", Title: "failed", Unit: report.Count},
		},
		prepare: func(tb testing.TB, plan Plan) []scenario {
			one, masters := startNodes(tb, 1), startCluster(tb)
			var cases []scenario
			for _, client := range []struct {
				group      string
				kind       peers.Kind
				nodes      []node
				peers      []peers.Peer
				goroutines []int
			}{
				{"Plain client", peers.Plain, one, peers.All(), []int{1, 16, 256}},
				{"AutoPipeline client", peers.AutoPipeline, one, peers.All(), []int{1, 16, 256}},
				{"Cluster of three masters", peers.Cluster, masters, peers.All(), []int{1, 16, 256}},
				{"Other clients", peers.Plain, one, peers.Clients(), []int{16, 256}},
			} {
				for _, goroutines := range client.goroutines {
					c := scenario{group: client.group, name: counted(goroutines, "goroutine")}
					for _, p := range client.peers {
						target := client.nodes[0].target()
						target.Client = client.kind
						c.entries = append(c.entries, entry{p.Name, func(ctx context.Context) (report.Sample, error) {
							return measurePairs(ctx, client.nodes, p, target, goroutines, plan.Duration)
						}})
					}
					cases = append(cases, c)
				}
			}
			return cases
		},
	}
}

func measurePairs(ctx context.Context, nodes []node, p peers.Peer, target peers.Target, goroutines int, d time.Duration) (report.Sample, error) {
	for _, n := range nodes {
		if err := n.forget(ctx); err != nil {
			return nil, err
		}
	}
	locker, err := p.Open(target)
	if err != nil {
		return nil, err
	}
	defer locker.Close()
	t, err := loop{
		locker: locker, goroutines: goroutines, duration: d, patience: 5 * time.Second, meter: meterOf(p, nodes...),
	}.run(ctx)
	if err != nil {
		return nil, err
	}
	count := float64(t.pair.Count())
	return report.Sample{
		"rate":   count / t.elapsed.Seconds(),
		"pair50": t.pair.Quantile(0.5),
		"pair99": t.pair.Quantile(0.99),
		"allocs": float64(t.used.Allocations) / count,
		"bytes":  float64(t.used.Bytes) / count,
		"client": t.used.ClientCPU.Seconds() / count,
		"redis":  t.used.RedisCPU.Seconds() / count,
		"failed": float64(t.failed),
	}, nil
}

func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
