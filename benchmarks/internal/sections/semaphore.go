package sections

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redlatch/redlatch/benchmarks/internal/peers"
	"github.com/redlatch/redlatch/benchmarks/internal/report"
)

// semaphore is what many get who all want one of the permits of a key.
func semaphore() Section {
	return Section{
		Name:  "semaphore",
		Title: "A semaphore",
		About: "64 clients, each with a connection pool of its own, acquire a permit of one key and release it again, over and over. " +
			"With a limit of 1 a lock stands beside the semaphore. On the free key one client is alone, so that nobody waits: " +
			"hand-offs are pairs there. A measurement lasts four times -d.",
		Metrics: []report.Metric{
			{Key: "rate", Title: "hand-offs/s", Unit: report.Rate},
			{Key: "longest", Title: "longest wait", Unit: report.Seconds},
			{Key: "jain", Title: "Jain", Unit: report.Index},
			{Key: "never", Title: "never served", Unit: report.Count},
			{Key: "direct", Title: "client commands a hand-off", Unit: report.Count},
			{Key: "commands", Title: "with those in scripts", Unit: report.Count},
			{Key: "client", Title: "client CPU a hand-off", Unit: report.Seconds},
			{Key: "redis", Title: "Redis CPU a hand-off", Unit: report.Seconds},
			{Key: "owners", Title: "owners at once", Unit: report.Count},
			{Key: "failed", Title: "failed", Unit: report.Count},
		},
		prepare: func(tb testing.TB, plan Plan) []scenario {
			n := start(tb)
			var cases []scenario
			for _, shape := range []struct {
				group   string
				clients int
				hold    time.Duration
			}{{"No hold", 64, 0}, {"Held for 5 ms", 64, 5 * time.Millisecond}, {"A free key", 1, 0}} {
				for _, limit := range []int{1, 8, 64} {
					c := scenario{group: shape.group, name: fmt.Sprintf("limit %d", limit)}
					crowd := crowd{shape.clients, 1, shape.hold, 0}
					crowd.duration = crowd.turns(plan.Duration)
					measured := []peers.Peer{peers.Semaphore(limit)}
					if limit == 1 {
						measured = append(measured, peers.SetNXPX())
					}
					for _, p := range measured {
						c.entries = append(c.entries, entry{p.Name, func(ctx context.Context) (report.Sample, error) {
							return crowd.measure(ctx, n, p)
						}})
					}
					cases = append(cases, c)
				}
			}
			return cases
		},
	}
}
