// Package sections has the measurements of the comparison, a file each.
package sections

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/benchmarks/internal/measure"
	"github.com/redlatch/redlatch/benchmarks/internal/peers"
	"github.com/redlatch/redlatch/benchmarks/internal/report"
	"github.com/redlatch/redlatch/internal/testing/redistest"
)

// Plan says how much is measured.
type Plan struct {
	Rounds   int
	Duration time.Duration // of one measurement; sections that need more take multiples of it
	Held     int           // locks that are renewed

	// Only, if not nil, leaves out what it does not match: group, case and peer, as
	// [report.Row.Name] has them.
	Only *regexp.Regexp
}

// Section is one question that is asked of every peer.
type Section struct {
	Name    string
	Title   string
	About   string
	Metrics []report.Metric

	// prepare starts what the section needs, which ends with tb, and returns its cases.
	prepare func(tb testing.TB, plan Plan) []scenario

	// finish, if not nil, adds figures that come from several rows.
	finish func(t *report.Table)
}

// scenario is a case, and the peers that it is measured for.
type scenario struct {
	group, name string
	entries     []entry
}

// entry is a peer in a case.
type entry struct {
	peer    string
	measure func(ctx context.Context) (report.Sample, error)
}

// row returns the row of an entry.
func (c scenario) row(e entry) report.Row {
	return report.Row{Group: c.group, Case: c.name, Peer: e.peer}
}

// choose returns the entries that Only matches.
func (p Plan) choose(cases []scenario) []scenario {
	if p.Only == nil {
		return cases
	}
	for i, c := range cases {
		cases[i].entries = slices.DeleteFunc(c.entries, func(e entry) bool { return !p.Only.MatchString(c.row(e).Name()) })
	}
	return cases
}

// All returns every section in the order in which they are run.
func All() []Section {
	return []Section{pairs(), hotKey(), semaphore(), quorum(), renewal(), reads(), distance()}
}

// Progress is called before each measurement. done of total are complete, and what names the next.
type Progress func(done, total int, what string)

// Run measures. In each round every case has its turn, and in each case every peer, in a random
// order. So other work of the machine affects all peers alike, and no peer profits from its place.
func (s Section) Run(ctx context.Context, tb testing.TB, plan Plan, progress Progress) (report.Table, error) {
	table := report.Table{Section: s.Name, Title: s.Title, About: s.About, Metrics: s.Metrics}
	cases := plan.choose(s.prepare(tb, plan))
	rows := make([]int, len(cases)) // where the rows of a case begin
	for i, c := range cases {
		rows[i] = len(table.Rows)
		for _, e := range c.entries {
			table.Rows = append(table.Rows, c.row(e))
		}
	}
	done, total := 0, plan.Rounds*len(table.Rows)
	for round := range plan.Rounds {
		for i, c := range cases {
			for _, j := range rand.Perm(len(c.entries)) {
				e := c.entries[j]
				what := fmt.Sprintf("%s, round %d: %s %s, %s", s.Name, round+1, c.group, c.name, e.peer)
				progress(done, total, what)
				done++
				runtime.GC() // so that this peer does not clean up after others
				sample, err := e.measure(ctx)
				if err != nil {
					return table, fmt.Errorf("%s: %w", what, err)
				}
				table.Rows[rows[i]+j].Add(sample)
			}
		}
	}
	if s.finish != nil {
		s.finish(&table)
	}
	return table, nil
}

// node is a Redis that is measured on.
type node struct {
	server *redistest.Server
	admin  *redis.Client
}

// start starts a Redis that admits as many clients as the hot key needs.
func start(tb testing.TB) node {
	tb.Helper()
	server := redistest.StartTCP(tb, "--maxclients", "10000")
	return node{server, server.Client(tb)}
}

// startNodes starts so many that are independent.
func startNodes(tb testing.TB, count int) []node {
	tb.Helper()
	var nodes []node
	for range count {
		nodes = append(nodes, start(tb))
	}
	return nodes
}

// startCluster starts a Cluster, and returns its masters.
func startCluster(tb testing.TB) []node {
	tb.Helper()
	var masters []node
	for _, server := range redistest.StartCluster(tb) {
		masters = append(masters, node{server, server.Client(tb)})
	}
	return masters
}

// target returns how to reach it.
func (n node) target() peers.Target { return peers.Target{Addr: n.server.Addr()} }

// meterOf returns a meter for p on all of these together.
func meterOf(p peers.Peer, nodes ...node) *measure.Meter {
	var admins []*redis.Client
	for _, n := range nodes {
		admins = append(admins, n.admin)
	}
	return measure.NewMeter(p.Direct, admins...)
}

// forget deletes all keys, so that nobody pays for what others left.
func (n node) forget(ctx context.Context) error { return n.admin.FlushAll(ctx).Err() }

// left returns how many keys are left when nobody holds or wants a lock. The register of the fences
// does not count, and clients that release in the background have some time for that.
func (n node) left(ctx context.Context) (int, error) {
	for end := time.Now().Add(peers.TTL / 4); ; time.Sleep(5 * time.Millisecond) {
		keys, err := n.admin.Keys(ctx, "*").Result()
		keys = slices.DeleteFunc(keys, func(key string) bool { return key == "redlatch:fence" })
		if err != nil || len(keys) == 0 || time.Now().After(end) {
			return len(keys), err
		}
	}
}
