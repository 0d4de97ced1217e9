package sections

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redlatch/redlatch/benchmarks/internal/peers"
	"github.com/redlatch/redlatch/benchmarks/internal/report"
)

// semaphore measures many clients that all want one of the permits of a key.
func semaphore() Section {
	return Section{
		Name:  "semaphore",
		Title: "A semaphore",
		About: "64 clients, each with a connection pool of its own, acquire a permit of one key and release it again, over and over. " +
			"With a limit of 1 a lock stands beside the semaphore. On the free key one client is alone, so that nobody waits: " +
			"hand-offs are pairs there. A measurement lasts four times -d.",
		// With several owners, a grant need not be due to the last unlock before it, and fences can
		// be read in any order.
		Metrics: slices.DeleteFunc(slices.Clone(crowdMetrics), func(m report.Metric) bool {
			return slices.Contains([]string{"gap50", "disorder", "sides"}, m.Key)
		}),
		prepare: func(tb testing.TB, plan Plan) []scenario {
			n := start(tb)
			var cases []scenario
			for _, shape := range []struct {
				group   string
				clients int
				hold    time.Duration
			}{{"No hold", 64, 0}, {"Held for 5 ms", 64, 5 * time.Millisecond}, {"A free key", 1, 0}} {
				for _, limit := range []int{1, 8, 64} {
					measured := []peers.Peer{peers.Semaphore(limit)}
					if limit == 1 {
						measured = append(measured, peers.SetNXPX())
					}
					crowd := crowd{sides: []side{{n.target(), shape.clients, 1}}, hold: shape.hold}
					cases = append(cases, scenario{
						group: shape.group, name: fmt.Sprintf("limit %d", limit), entries: crowd.entries(n, plan, measured...),
					})
				}
			}
			return cases
		},
	}
}
