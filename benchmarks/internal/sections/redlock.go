package sections

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redlatch/redlatch/benchmarks/internal/peers"
	"github.com/redlatch/redlatch/benchmarks/internal/report"
	"github.com/redlatch/redlatch/internal/testing/faultproxy"
)

// quorum measures the cost of a free lock on five nodes, with and without faults.
func quorum() Section {
	return Section{
		Name:  "redlock",
		Title: "Redlock on 5 nodes",
		About: "One goroutine locks and unlocks a free key. A fault strikes when the connections are open: " +
			"the hung node is silent, the refused one is gone. redsync is the only peer with independent nodes. " +
			"Where one pair takes longer than a measurement it is the only one of its round.",
		Metrics: []report.Metric{
			{Key: "lock50", Title: "lock, median", Unit: report.Seconds},
			{Key: "lock99", Title: "p99", Unit: report.Seconds},
			{Key: "unlock50", Title: "unlock, median", Unit: report.Seconds},
			{Key: "unlock99", Title: "p99", Unit: report.Seconds},
			{Key: "samples", Title: "pairs a round", Unit: report.Count},
			{Key: "failed", Title: "failed", Unit: report.Count},
		},
		prepare: func(tb testing.TB, plan Plan) []scenario {
			five := startFive(tb)
			var cases []scenario
			for _, trouble := range troubles {
				c := scenario{name: trouble.name}
				for _, p := range []peers.Peer{peers.Redlatch(), peers.Redsync()} {
					c.entries = append(c.entries, entry{p.Name, func(ctx context.Context) (report.Sample, error) {
						return five.measure(ctx, p, trouble, plan.Duration)
					}})
				}
				cases = append(cases, c)
			}
			return cases
		},
	}
}

// trouble is a fault of the nodes.
type trouble struct {
	name   string
	behind func(node int) bool               // whether clients reach that node through its proxy
	inject func(proxies []*faultproxy.Proxy) // once the connections are open
}

const last = 4 // the node with the fault, if one node has it

var troubles = []trouble{
	{"healthy", none, func([]*faultproxy.Proxy) {}},
	{"all at 0.5–1.5 ms", every, func(proxies []*faultproxy.Proxy) {
		for _, p := range proxies {
			p.DelayFunc(func() time.Duration {
				return time.Millisecond/2 + rand.N(time.Millisecond)
			})
		}
	}},
	{"one at 50 ms", one, func(proxies []*faultproxy.Proxy) { proxies[last].Delay(50 * time.Millisecond) }},
	{"one hung", one, func(proxies []*faultproxy.Proxy) { proxies[last].Silence() }},
	{"one refused", one, func(proxies []*faultproxy.Proxy) { proxies[last].Refuse() }},
}

func none(int) bool     { return false }
func every(int) bool    { return true }
func one(node int) bool { return node == last }

// five are independent nodes with a proxy each.
type five struct {
	nodes   []node
	proxies []*faultproxy.Proxy
}

func startFive(tb testing.TB) five {
	tb.Helper()
	all := five{nodes: startNodes(tb, last+1)}
	for _, n := range all.nodes {
		all.proxies = append(all.proxies, faultproxy.New(tb, n.server.Network(), n.server.Addr()))
	}
	return all
}

func (f five) measure(ctx context.Context, p peers.Peer, what trouble, d time.Duration) (report.Sample, error) {
	var targets []peers.Target
	for i, n := range f.nodes {
		if err := n.forget(ctx); err != nil {
			return nil, err
		}
		target := n.target()
		if what.behind(i) {
			target.Addr = f.proxies[i].Addr()
		}
		targets = append(targets, target)
	}
	locker, err := p.OpenQuorum(targets)
	if err != nil {
		return nil, err
	}
	defer func() {
		_ = locker.Close() // first, so that no held request reaches the next measurement
		for _, proxy := range f.proxies {
			proxy.HealDropping()
		}
	}()
	t, err := loop{
		locker: locker, goroutines: 1, duration: d, patience: 30 * time.Second,
		ready: func() { what.inject(f.proxies) },
	}.run(ctx)
	if err != nil {
		return nil, err
	}
	sample := t.latencies()
	sample["samples"] = float64(t.pair.Count())
	return sample, nil
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
