package sections

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redlatch/redlatch/benchmarks/internal/peers"
	"github.com/redlatch/redlatch/benchmarks/internal/report"
	"github.com/redlatch/redlatch/internal/testing/faultproxy"
)

// reads measures many readers and few writers of one key, beside a lock that excludes all of them.
func reads() Section {
	return Section{
		Name:  "reads",
		Title: "Reads and writes",
		About: "So many clients times so many goroutines each want one key, held for 1 ms: some in a hundred to write, the others to read. " +
			"NewSetNXPX locks for both. A proxy holds each reply and each message back for the round trip.",
		Metrics: slices.DeleteFunc(slices.Clone(crowdMetrics), func(m report.Metric) bool {
			return slices.Contains([]string{"gap50", "sides", "owners", "disorder"}, m.Key)
		}),
		prepare: func(tb testing.TB, plan Plan) []scenario {
			n := start(tb)
			proxy := faultproxy.New(tb, n.server.Network(), n.server.Addr())
			proxy.Delay(time.Millisecond)
			near, far := n.target(), peers.Target{Addr: proxy.Addr()}
			var cases []scenario
			for _, way := range []struct {
				group string
				side  side
			}{{"No round trip", side{near, 1, 64}}, {"Round trip of 1 ms", side{far, 1, 64}}, {"Round trip of 1 ms", side{far, 4, 16}}} {
				for _, writes := range []int{0, 1, 10} {
					c := crowd{sides: []side{way.side}, hold: time.Millisecond}
					cases = append(cases, scenario{
						way.group, fmt.Sprintf("%s, %d %% writes", way.side, writes),
						withoutOwners(c.entries(n, plan, peers.ReadWrite(writes), peers.SetNXPX())),
					})
				}
			}
			return cases
		},
	}
}

// withoutOwners leaves out how many owners there are at once, and the order of their fences:
// readers share both.
func withoutOwners(entries []entry) []entry {
	for i, e := range entries {
		entries[i].measure = func(ctx context.Context) (report.Sample, error) {
			s, err := e.measure(ctx)
			delete(s, "owners")
			delete(s, "disorder")
			return s, err
		}
	}
	return entries
}
