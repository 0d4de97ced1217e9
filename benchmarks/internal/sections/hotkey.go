package sections

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redlatch/redlatch/benchmarks/internal/measure"
	"github.com/redlatch/redlatch/benchmarks/internal/peers"
	"github.com/redlatch/redlatch/benchmarks/internal/report"
)

// hotKey measures many goroutines that all want one lock.
func hotKey() Section {
	return Section{
		Name:  "hotkey",
		Title: "One key that all want",
		About: "So many clients, each with a connection pool of its own, times so many goroutines each, " +
			"lock one key and unlock it again, over and over. Who still waits at the end counts with the wait so far. " +
			"A measurement lasts four times -d, and, with -d at its default or more, long enough for a queue to serve everybody.",
		Metrics: crowdMetrics,
		prepare: func(tb testing.TB, plan Plan) []scenario {
			n := start(tb)
			var cases []scenario
			for _, holding := range []struct {
				group string
				hold  time.Duration
			}{{"No hold", 0}, {"Held for 5 ms", 5 * time.Millisecond}} {
				for _, shape := range []struct{ clients, goroutines int }{{8, 4}, {64, 1}, {256, 4}} {
					crowd := crowd{shape.clients, shape.goroutines, holding.hold}
					cases = append(cases, scenario{
						group: holding.group, name: fmt.Sprintf("%d×%d", shape.clients, shape.goroutines),
						entries: crowd.entries(n, plan, peers.Redlatch(), peers.Redsync(), peers.Redislock(), peers.Rueidislock()),
					})
				}
			}
			return cases
		},
	}
}

// crowd is clients × goroutines that all want one key, which each holds for a while.
type crowd struct {
	clients, goroutines int
	hold                time.Duration
}

// crowdMetrics are those of crowd.measure.
var crowdMetrics = []report.Metric{
	{Key: "rate", Title: "hand-offs/s", Unit: report.Rate},
	{Key: "gap50", Title: "unlock to next grant, median", Unit: report.Seconds},
	{Key: "longest", Title: "longest wait", Unit: report.Seconds},
	{Key: "jain", Title: "Jain", Unit: report.Index},
	{Key: "never", Title: "never served", Unit: report.Count},
	{Key: "direct", Title: "client commands a hand-off", Unit: report.Count},
	{Key: "commands", Title: "with those in scripts", Unit: report.Count},
	{Key: "client", Title: "client CPU a hand-off", Unit: report.Seconds},
	{Key: "redis", Title: "Redis CPU a hand-off", Unit: report.Seconds},
	{Key: "owners", Title: "owners at once", Unit: report.Count},
	{Key: "failed", Title: "failed", Unit: report.Count},
}

// entries has the crowd measure each peer.
func (c crowd) entries(n node, plan Plan, measured ...peers.Peer) []entry {
	var entries []entry
	for _, p := range measured {
		entries = append(entries, entry{p.Name, func(ctx context.Context) (report.Sample, error) {
			return c.measure(ctx, n, p, c.turns(plan.Duration))
		}})
	}
	return entries
}

// turns returns how long to measure: four times d, or up to sixteen times d if a queue needs that
// to serve everybody and a quarter of them again.
func (c crowd) turns(d time.Duration) time.Duration {
	const handOff = time.Millisecond // with what time.Sleep oversleeps
	everybody := time.Duration(c.clients*c.goroutines) * (c.hold + handOff)
	return max(4*d, min(everybody*5/4, 16*d))
}

func (c crowd) measure(ctx context.Context, n node, p peers.Peer, d time.Duration) (sample report.Sample, err error) {
	if err := n.forget(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, hour)
	defer cancel()
	f := newFray(c)
	defer func() {
		for _, locker := range f.lockers {
			_ = locker.Close()
		}
	}()
	for range c.clients {
		locker, err := p.Open(n.target())
		if err != nil {
			return nil, err
		}
		f.lockers = append(f.lockers, locker)
	}
	f.warmUp(ctx)
	meter := n.meter(p)
	before, err := meter.Read(ctx)
	if err != nil {
		return nil, err
	}
	f.fight(ctx)
	time.Sleep(d)
	waiting := f.end()
	after, err := meter.Read(ctx)
	cancel()
	f.wg.Wait()
	if err != nil {
		return nil, err
	}
	return f.sample(waiting, after.Since(before)), nil
}

// sample returns the figures of the fray. waiting is the longest wait that was still going on.
func (f *fray) sample(waiting time.Duration, used measure.Usage) report.Sample {
	var waits, gaps measure.Histogram
	var served []int64
	var total, never, failed float64
	for i := range f.fighters {
		fighter := &f.fighters[i]
		waits.Merge(&fighter.waits)
		gaps.Merge(&fighter.gaps)
		served = append(served, fighter.served)
		total += float64(fighter.served)
		failed += float64(fighter.failed)
		if fighter.served == 0 {
			never++
		}
	}
	return report.Sample{
		"rate":     total / f.elapsed.Seconds(),
		"gap50":    gaps.Quantile(0.5),
		"longest":  max(waits.Longest(), waiting).Seconds(),
		"jain":     measure.Jain(served),
		"never":    never,
		"direct":   used.Direct / total,
		"commands": used.Commands / total,
		"client":   used.ClientCPU.Seconds() / total,
		"redis":    used.RedisCPU.Seconds() / total,
		"owners":   float64(f.owners.Load()),
		"failed":   failed,
	}
}
