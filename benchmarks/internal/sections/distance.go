package sections

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redlatch/redlatch/benchmarks/internal/peers"
	"github.com/redlatch/redlatch/benchmarks/internal/report"
)

// distance measures what loopback hides: that callers wait for replies, one after the other.
func distance() Section {
	return Section{
		Name:  "distance",
		Title: "Over a network",
		About: "The connections of the clients delay what they send for the round trip. " +
			"On free keys, and with other clients than go-redis, each caller, a goroutine of one client, " +
			"locks and unlocks a key of its own, for -d or 100 round trips after a warm-up; " +
			"a pair takes two round trips at least. " +
			"In the other groups, so many clients times so many goroutines want one key, one of its permits, or to read it, " +
			"and those measurements last twice -d. Who still waits at the end counts with the wait so far. " +
			"A dash says that there was no pair.",
		Metrics: []report.Metric{
			{Key: "pair50", Title: "a pair, median", Unit: report.Seconds},
			{Key: "pair99", Title: "99 %", Unit: report.Seconds},
			{Key: "trips", Title: "median in round trips", Unit: report.Ratio},
			{Key: "mean", Title: "mean in round trips", Unit: report.Ratio},
			{Key: "trips99", Title: "99 % in round trips", Unit: report.Ratio},
			{Key: "ratio", Title: "median to that of raw commands", Unit: report.Ratio},
			{Key: "rate", Title: "pairs/s", Unit: report.Rate},
			{Key: "lock50", Title: "wait, median", Unit: report.Seconds},
			{Key: "lock99", Title: "99 %", Unit: report.Seconds},
			{Key: "longest", Title: "longest", Unit: report.Seconds},
			{Key: "jain", Title: "Jain", Unit: report.Index},
			{Key: "never", Title: "never served", Unit: report.Count},
			{Key: "owners", Title: "owners at once", Unit: report.Count},
			{Key: "left", Title: "keys left", Unit: report.Count},
			{Key: "failed", Title: "failed", Unit: report.Count},
		},
		prepare: func(tb testing.TB, plan Plan) []scenario {
			n := start(tb)
			var cases []scenario
			for _, roundTrip := range []time.Duration{time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond} {
				cases = append(cases, distantPairs(n, plan, "Free keys", roundTrip, peers.All(), 1, 5, 16, 64)...)
				cases = append(cases, distantPairs(n, plan, "Other clients", roundTrip, peers.Clients(), 16, 256)...)
			}
			const near = time.Millisecond
			cases = append(cases, distantCrowds(n, plan, near)...)
			return append(cases, distantQuorum(startNodes(tb, 3), plan, near)...)
		},
		finish: compareWithRaw,
	}
}

// distantGroup is the group of cases with that round trip.
func distantGroup(of string, roundTrip time.Duration) string {
	return fmt.Sprintf("%s, round trip of %d ms", of, roundTrip.Milliseconds())
}

// distantPairs returns the cases of keys that nobody else wants.
func distantPairs(
	n node, plan Plan, group string, roundTrip time.Duration, measured []peers.Peer, callers ...int,
) []scenario {
	target := n.target()
	target.RoundTrip = roundTrip
	var cases []scenario
	for _, callers := range callers {
		c := scenario{group: distantGroup(group, roundTrip), name: counted(callers, "caller")}
		for _, p := range measured {
			c.entries = append(c.entries, entry{p.Name, func(ctx context.Context) (report.Sample, error) {
				if err := n.forget(ctx); err != nil {
					return nil, err
				}
				locker, err := p.Open(target)
				if err != nil {
					return nil, err
				}
				return distantLoop(ctx, locker, callers, plan, roundTrip)
			}})
		}
		cases = append(cases, c)
	}
	return cases
}

// distantLoop measures the pairs of locker, and closes it. A caller has time for about fifty pairs or
// more, so that 99 % says something. The same goes before, unmeasured: a client opens connections, and
// learns how far away Redis is.
func distantLoop(ctx context.Context, locker peers.Locker, callers int, plan Plan, roundTrip time.Duration) (report.Sample, error) {
	defer locker.Close()
	l := loop{locker: locker, goroutines: callers, duration: plan.Duration, patience: 500 * time.Millisecond}
	if _, err := l.run(ctx); err != nil {
		return nil, err
	}
	l.duration = max(plan.Duration, min(100*roundTrip, 4*plan.Duration))
	t, err := l.run(ctx)
	if err != nil {
		return nil, err
	}
	median := t.pair.Quantile(0.5)
	return report.Sample{
		"pair50":  median,
		"pair99":  t.pair.Quantile(0.99),
		"trips":   median / roundTrip.Seconds(),
		"mean":    t.pair.Mean() / roundTrip.Seconds(),
		"trips99": t.pair.Quantile(0.99) / roundTrip.Seconds(),
		"rate":    float64(t.pair.Count()) / t.elapsed.Seconds(),
		"failed":  float64(t.failed),
	}, nil
}

// compareWithRaw adds to each row of free keys its median over that of the raw commands.
func compareWithRaw(t *report.Table) {
	floor := make(map[string]float64)
	for _, row := range t.Rows {
		if row.Peer == peers.Raw().Name {
			floor[row.Group+row.Case] = row.Figures["pair50"].Median
		}
	}
	for i, row := range t.Rows {
		if raw := floor[row.Group+row.Case]; raw > 0 {
			if median, ok := row.Figures["pair50"]; ok {
				t.Rows[i].Add(report.Sample{"ratio": median.Median / raw})
			}
		}
	}
}

// distantCrowds returns the cases of keys that many want.
func distantCrowds(n node, plan Plan, roundTrip time.Duration) []scenario {
	target := n.target()
	target.RoundTrip = roundTrip
	plan.Duration /= 2 // a crowd takes four times as long
	many := side{target, 4, 16}
	locks := []peers.Peer{peers.Redlatch(), peers.Redsync(), peers.Redislock(), peers.Rueidislock()}
	const limit = 48
	var cases []scenario
	add := func(group, name string, s side, hold time.Duration, measured ...peers.Peer) {
		c := crowd{sides: []side{s}, hold: hold}
		cases = append(cases, scenario{distantGroup(group, roundTrip), name + s.String(), c.entries(n, plan, measured...)})
	}
	for _, s := range []side{many, {target, 64, 1}} {
		add("One key, held for 1 ms", "", s, time.Millisecond, locks...)
	}
	for _, s := range []side{{target, 1, limit + 1}, many} {
		add("Permits, held for 5 ms", fmt.Sprintf("limit %d, ", limit), s, 5*time.Millisecond, peers.Semaphore(limit))
	}
	readers := crowd{sides: []side{many}, hold: time.Millisecond}
	return append(cases, scenario{
		distantGroup("Held for 1 ms, 1 % writes", roundTrip), many.String(),
		withoutOwners(readers.entries(n, plan, peers.ReadWrite(1), peers.SetNXPX())),
	})
}

// distantQuorum returns the cases of Redlock.
func distantQuorum(nodes []node, plan Plan, roundTrip time.Duration) []scenario {
	var targets []peers.Target
	for _, n := range nodes {
		target := n.target()
		target.RoundTrip = roundTrip
		targets = append(targets, target)
	}
	var cases []scenario
	for _, callers := range []int{1, 16} {
		c := scenario{group: distantGroup(fmt.Sprintf("Redlock on %d nodes", len(nodes)), roundTrip), name: counted(callers, "caller")}
		for _, p := range []peers.Peer{peers.Redlatch(), peers.Redsync()} {
			c.entries = append(c.entries, entry{p.Name, func(ctx context.Context) (report.Sample, error) {
				for _, n := range nodes {
					if err := n.forget(ctx); err != nil {
						return nil, err
					}
				}
				locker, err := p.OpenQuorum(targets)
				if err != nil {
					return nil, err
				}
				return distantLoop(ctx, locker, callers, plan, roundTrip)
			}})
		}
		cases = append(cases, c)
	}
	return cases
}
