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

// network measures what a network shows and loopback hides: that callers wait for replies one after
// the other.
func network() Section {
	return Section{
		Name:  "network",
		Title: "Over a network",
		About: "A proxy holds each reply and each message back for the round trip. On free keys, each of 64 goroutines of one client " +
			"locks and unlocks a key of its own. On the other keys, so many clients times so many goroutines each want one key, " +
			"or one of the permits of a semaphore. A measurement lasts four times -d.",
		Metrics: slices.Insert(slices.DeleteFunc(slices.Clone(crowdMetrics), func(m report.Metric) bool {
			return slices.Contains([]string{"gap50", "sides", "commands", "disorder"}, m.Key)
		}), 1, report.Metric{Key: "lock50", Title: "lock, median", Unit: report.Seconds}),
		prepare: func(tb testing.TB, plan Plan) []scenario {
			n := start(tb)
			var cases []scenario
			for _, added := range []time.Duration{time.Millisecond, 5 * time.Millisecond} {
				proxy := faultproxy.New(tb, n.server.Network(), n.server.Addr())
				proxy.Delay(added)
				cases = append(cases, distant(n, plan, peers.Target{Addr: proxy.Addr()}, "Round trip of "+added.String())...)
			}
			return cases
		},
	}
}

// distant returns the cases of one round trip.
func distant(n node, plan Plan, far peers.Target, group string) []scenario {
	locks := []peers.Peer{peers.Redlatch(), peers.Redsync(), peers.Redislock(), peers.Rueidislock()}
	free := scenario{group: group, name: "free keys, 1×64"}
	for _, p := range locks {
		free.entries = append(free.entries, entry{p.Name, func(ctx context.Context) (report.Sample, error) {
			return measureFree(ctx, n, p, far, 64, 4*plan.Duration)
		}})
	}
	hot := crowd{sides: []side{{far, 4, 16}}, hold: time.Millisecond}
	cases := []scenario{free, {group, "one key, 4×16, held for 1 ms", hot.entries(n, plan, locks...)}}
	const limit = 48
	for _, hold := range []time.Duration{5 * time.Millisecond, 20 * time.Millisecond} {
		for _, s := range []side{{far, 1, limit}, {far, 1, limit + 1}, {far, 1, 64}, {far, 4, 16}} {
			c := crowd{sides: []side{s}, hold: hold}
			name := fmt.Sprintf("limit %d, %s, held for %d ms", limit, s, hold.Milliseconds())
			cases = append(cases, scenario{group, name, c.entries(n, plan, peers.Semaphore(limit))})
		}
	}
	return cases
}

// measureFree returns those figures of a crowd that goroutines have which each lock a key of their
// own.
func measureFree(ctx context.Context, n node, p peers.Peer, target peers.Target, goroutines int, d time.Duration) (report.Sample, error) {
	if err := n.forget(ctx); err != nil {
		return nil, err
	}
	locker, err := p.Open(target)
	if err != nil {
		return nil, err
	}
	defer locker.Close()
	t, err := loop{
		locker: locker, goroutines: goroutines, duration: d, patience: 5 * time.Second, meter: n.meter(p),
	}.run(ctx)
	if err != nil {
		return nil, err
	}
	left, err := n.left(ctx)
	count := float64(t.pair.Count())
	return report.Sample{
		"rate":    count / t.elapsed.Seconds(),
		"lock50":  t.lock.Quantile(0.5),
		"longest": t.lock.Longest().Seconds(),
		"direct":  t.used.Direct / count,
		"client":  t.used.ClientCPU.Seconds() / count,
		"redis":   t.used.RedisCPU.Seconds() / count,
		"left":    float64(left),
		"failed":  float64(t.failed),
	}, err
}
