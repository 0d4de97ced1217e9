package sections

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redlatch/redlatch/benchmarks/internal/peers"
	"github.com/redlatch/redlatch/benchmarks/internal/report"
)

// reads measures many readers and few writers of one key, beside a lock that excludes all of them.
func reads() Section {
	return Section{
		Name:  "reads",
		Title: "Reads and writes",
		About: "So many clients times so many goroutines each want one key, held for 1 ms: some in a hundred to write, the others to read. " +
			"NewSetNXPX locks for both.",
		Metrics: slices.DeleteFunc(slices.Clone(crowdMetrics), func(m report.Metric) bool {
			return slices.Contains([]string{"gap50", "sides", "owners", "disorder"}, m.Key)
		}),
		prepare: func(tb testing.TB, plan Plan) []scenario {
			n := start(tb)
			var cases []scenario
			for _, s := range []side{{n.target(), 1, 64}, {n.target(), 4, 16}} {
				for _, writes := range []int{0, 1, 10} {
					c := crowd{sides: []side{s}, hold: time.Millisecond}
					cases = append(cases, scenario{
						"", fmt.Sprintf("%s, %d %% writes", s, writes),
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
