package sections

import (
	"context"
	"fmt"
	"math"
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
			"A measurement lasts four times -d, and, with -d at its default or more, long enough for a queue to serve everybody. " +
			"Callers that give up call again at once, " +
			"and their wait goes on; there bsm/redislock asks every 2 ms, and rueidislock is missing: its lock ends with the ctx of the call. " +
			"A client without a channel may not PUBLISH and SUBSCRIBE.",
		Metrics: crowdMetrics,
		prepare: func(tb testing.TB, plan Plan) []scenario {
			n := start(tb)
			near, deaf := n.target(), n.target()
			user := n.server.User(tb, "~*", "&*", "+@all", "-publish", "-subscribe")
			deaf.Username, deaf.Password = user.Username, user.Password

			all := []peers.Peer{peers.Redlatch(), peers.Redsync(), peers.Redislock(), peers.Rueidislock()}
			var cases []scenario
			add := func(group, name string, c crowd, measured ...peers.Peer) {
				cases = append(cases, scenario{group, name, c.entries(n, plan, measured...)})
			}
			shapes := []side{{near, 1, 64}, {near, 4, 64}, {near, 8, 8}, {near, 64, 1}, {near, 256, 4}}
			for _, hold := range []time.Duration{0, time.Millisecond, 5 * time.Millisecond} {
				for _, s := range shapes {
					add(held(hold), s.String(), crowd{sides: []side{s}, hold: hold}, all...)
				}
			}
			crowded := side{near, 200, 1}
			add(held(time.Millisecond), crowded.String(), crowd{sides: []side{crowded}, hold: time.Millisecond}, all...)
			for _, s := range []side{{near, 4, 64}, {near, 64, 1}, crowded} {
				add(held(time.Millisecond)+", callers give up after up to 20 ms", s.String(),
					crowd{sides: []side{s}, hold: time.Millisecond, patience: 20 * time.Millisecond},
					peers.Redlatch(), peers.Redsync(), peers.RedislockEvery(2*time.Millisecond))
			}
			add(held(0), "1×64 beside 8×1", crowd{sides: []side{{near, 1, 64}, {near, 8, 1}}}, all...)
			add("Held for 2 ms", "1×4 beside 1×4 without a channel",
				crowd{sides: []side{{near, 1, 4}, {deaf, 1, 4}}, hold: 2 * time.Millisecond}, peers.Redlatch())
			add("Held for 1 ms, clients poll", "4×16", crowd{sides: []side{{near, 4, 16}}, hold: time.Millisecond},
				peers.WithoutQueue(), peers.Redsync(), peers.Redislock())
			return cases
		},
	}
}

// crowd is clients that all want one key, which each goroutine holds for a while.
type crowd struct {
	sides    []side // one or two
	hold     time.Duration
	patience time.Duration // a call gives up after a random time of up to so much; 0: never
}

// side is clients × goroutines that are alike.
type side struct {
	target              peers.Target
	clients, goroutines int
}

func (s side) String() string { return fmt.Sprintf("%d×%d", s.clients, s.goroutines) }

func held(hold time.Duration) string {
	if hold == 0 {
		return "No hold"
	}
	return fmt.Sprintf("Held for %d ms", hold.Milliseconds())
}

// crowdMetrics are those of crowd.measure.
var crowdMetrics = []report.Metric{
	{Key: "rate", Title: "hand-offs/s", Unit: report.Rate},
	{Key: "gap50", Title: "unlock to next grant, median", Unit: report.Seconds},
	{Key: "lock50", Title: "wait, median", Unit: report.Seconds},
	{Key: "lock99", Title: "99 %", Unit: report.Seconds},
	{Key: "granted", Title: "longest that ended", Unit: report.Seconds},
	{Key: "longest", Title: "longest wait", Unit: report.Seconds},
	{Key: "jain", Title: "Jain", Unit: report.Index},
	{Key: "sides", Title: "grants a goroutine, first side to second", Unit: report.Count},
	{Key: "never", Title: "never served", Unit: report.Count},
	{Key: "direct", Title: "client commands a hand-off", Unit: report.Count},
	{Key: "commands", Title: "with those in scripts", Unit: report.Count},
	{Key: "client", Title: "client CPU a hand-off", Unit: report.Seconds},
	{Key: "redis", Title: "Redis CPU a hand-off", Unit: report.Seconds},
	{Key: "owners", Title: "owners at once", Unit: report.Count},
	{Key: "disorder", Title: "fences out of order", Unit: report.Count},
	{Key: "left", Title: "keys left", Unit: report.Count},
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
	goroutines := 0
	for _, s := range c.sides {
		goroutines += s.clients * s.goroutines
	}
	everybody := time.Duration(goroutines) * (c.hold + handOff)
	return max(4*d, min(everybody*5/4, 16*d))
}

func (c crowd) measure(ctx context.Context, n node, p peers.Peer, d time.Duration) (sample report.Sample, err error) {
	if err := n.forget(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, hour)
	defer cancel()
	f := &fray{crowd: c}
	defer f.close()
	if err := f.open(p.Open); err != nil {
		return nil, err
	}
	f.warmUp(ctx)
	meter := meterOf(p, n)
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
	left, err := n.left(context.WithoutCancel(ctx))
	sample = f.sample(waiting, after.Since(before))
	sample["left"] = float64(left)
	return sample, err
}

// sample returns the figures of the fray. waiting is the longest wait that was still going on.
func (f *fray) sample(waiting time.Duration, used measure.Usage) report.Sample {
	var waits, gaps measure.Histogram
	var served []int64
	var total, never, failed float64
	var sides [2][]float64 // how often each goroutine was served
	for _, fighter := range f.fighters {
		waits.Merge(&fighter.waits)
		gaps.Merge(&fighter.gaps)
		served = append(served, fighter.served)
		sides[fighter.side] = append(sides[fighter.side], float64(fighter.served))
		total += float64(fighter.served)
		failed += float64(fighter.failed)
		if fighter.served == 0 {
			never++
		}
	}
	granted := math.NaN() // if nobody was served
	if total > 0 {
		granted = waits.Longest().Seconds()
	}
	disorder := math.NaN() // if locks have no fences
	if f.fence.Load() != 0 {
		disorder = float64(f.disorder.Load())
	}
	return report.Sample{
		"rate":     total / f.elapsed.Seconds(),
		"gap50":    gaps.Quantile(0.5),
		"lock50":   waits.Quantile(0.5),
		"lock99":   waits.Quantile(0.99),
		"granted":  granted,
		"longest":  max(waits.Longest(), waiting).Seconds(),
		"jain":     measure.Jain(served),
		"sides":    measure.Mean(sides[0]) / max(measure.Mean(sides[1]), 1/float64(len(sides[1]))), // one grant at least
		"never":    never,
		"served":   1 - never/float64(len(f.fighters)),
		"direct":   used.Direct / total,
		"commands": used.Commands / total,
		"client":   used.ClientCPU.Seconds() / total,
		"redis":    used.RedisCPU.Seconds() / total,
		"owners":   float64(f.owners.Load()),
		"disorder": disorder,
		"failed":   failed,
	}
}
