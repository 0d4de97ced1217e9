package fencemodel

import (
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	long   = flag.Bool("fencemodel.long", false, "explore more worlds: takes a quarter of a minute")
	deep   = flag.Bool("fencemodel.deep", false, "explore larger worlds: takes minutes and gigabytes")
	random = flag.Duration("fencemodel.random", 500*time.Millisecond, "how long to play random runs")
	first  = flag.Uint64("fencemodel.seed", 0, "the seed of the first random run; 0 chooses one at random")
)

// variants are changes of the protocol. The tests must catch each wrong variant. If they do not, they cannot detect
// what it breaks. A safe variant shows that a part of the protocol is not needed for safety.
var variants = []struct {
	name  string
	rules rules
	safe  bool
	rare  bool // random runs seldom catch it
}{
	{name: "the largest vote", rules: rules{largestVote: true}},
	{name: "a skip at one vote", rules: rules{oneVote: true}},
	{name: "a raise acknowledged at any counter", rules: rules{ackAbove: true}, rare: true},
	{name: "an acknowledgement counted twice", rules: rules{ackTwice: true}},
	{name: "a raise where the lock is another's", rules: rules{raiseAll: true}},
	{name: "a heal that acquires", rules: rules{healing: healAcquires}, rare: true},
	{name: "a heal that leaves the counter", rules: rules{healing: healKeeps}, rare: true},

	// A node whose vote is f need not acknowledge f again.
	{name: "a vote that acknowledges", rules: rules{ackByVote: true}, safe: true},
	// If a quorum agrees on less than the largest vote, no raise is needed: the larger vote
	// might as well have been lost.
	{name: "a skip at the largest vote only", rules: rules{onlyLargest: true}, safe: true},
	// Waiting for a quorum of votes before the first raise saves rounds. Safety does not need it.
	{name: "a raise after the first vote", rules: rules{earlyRaise: true}, safe: true},
}

// world is large enough to catch every wrong variant, and is explored in a moment.
var world = bounds{attempts: 2, clients: 2, counters: 1, wipes: 1}

func TestNoInterleavingBreaksAFence(t *testing.T) {
	for _, tt := range []struct {
		name   string
		bounds bounds
		size   size
	}{
		{"each of two clients twice", bounds{attempts: 4, clients: 2}, medium},
		{"three attempts", bounds{attempts: 3, clients: 2}, small},
		{"from unequal counters", bounds{attempts: 2, clients: 2, counters: 3}, small},
		{"three clients", bounds{attempts: 3, clients: 3, counters: 1}, normal},
		{"acquires sent again", bounds{attempts: 2, clients: 2, counters: 1, resends: 2}, medium},
		{"a node emptied", bounds{attempts: 3, clients: 2, wipes: 1}, normal},
		{"two nodes emptied, both healed", bounds{attempts: 2, clients: 2, counters: 2, wipes: 2}, small},
		{"twice, from unequal counters", bounds{attempts: 4, clients: 2, counters: 1}, large},
		{"twice, acquires sent again", bounds{attempts: 3, clients: 2, counters: 1, resends: 1}, large},
		{"three nodes emptied", bounds{attempts: 3, clients: 2, counters: 1, wipes: 3}, large},
		{"emptied and sent again", bounds{attempts: 3, clients: 2, resends: 1, wipes: 1}, large},
		{"four clients", bounds{attempts: 4, clients: 4}, large},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.size > largest() {
				t.Skip("see -fencemodel.long and -fencemodel.deep")
			}
			start := time.Now()
			found := explore(rules{}, tt.bounds)
			t.Logf("%d states in %v", found.states, time.Since(start).Round(time.Millisecond))
			require.Empty(t, found.trace, strings.Join(found.trace, "\n"))
			require.False(t, found.cut, "a larger maxFence is needed")
			require.NotZero(t, found.agreed, "nothing was granted by votes")
			require.NotZero(t, found.acked, "nothing was granted by acknowledgements")
		})
	}
}

// size says when a world is explored.
type size int

const (
	small  size = iota // always
	normal             // without the race detector, which is slow
	medium             // only with -fencemodel.long, as .ci/run has it
	large              // only with -fencemodel.deep
)

func largest() size {
	switch {
	case *deep:
		return large
	case *long:
		return medium
	case underRace:
		return small
	}
	return normal
}

func TestWrongVariantsAreCaught(t *testing.T) {
	for _, tt := range variants {
		if tt.safe {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			found := explore(tt.rules, world)
			require.NotEmpty(t, found.trace)
			t.Logf("%d steps, %d states\n%s", len(found.trace)-1, found.states, strings.Join(found.trace, "\n"))
		})
	}
}

func TestSafeVariantsBreakNothing(t *testing.T) {
	worlds := []bounds{world, {attempts: 2, clients: 2, resends: 1}}
	if largest() >= medium {
		worlds = append(worlds, bounds{attempts: 3, clients: 2})
	}
	for _, tt := range variants {
		if !tt.safe {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			for _, w := range worlds {
				found := explore(tt.rules, w)
				t.Logf("%d states", found.states)
				require.Empty(t, found.trace, strings.Join(found.trace, "\n"))
				require.False(t, found.cut, "a larger maxFence is needed")
			}
		})
	}
}

// TestReductionsLoseNothing: without the reductions, which save nearly all of the states, the same fences are granted
// and, with -fencemodel.long, the same variants are caught.
func TestReductionsLoseNothing(t *testing.T) {
	if largest() < normal {
		t.Skip("the race detector is slow")
	}
	tiny := bounds{attempts: 2, clients: 2}
	plain := tiny
	plain.plain = true
	reduced, all := explore(rules{}, tiny), explore(rules{}, plain)
	t.Logf("%d states stand for %d", reduced.states, all.states)
	require.Empty(t, all.trace)
	require.Equal(t, all.agreed, reduced.agreed)
	require.Equal(t, all.acked, reduced.acked)
	if largest() < medium {
		return
	}

	for _, tt := range variants {
		if tt.safe {
			continue
		}
		w := bounds{attempts: 2, clients: 2, counters: 1, plain: true}
		if tt.rules.healing != healRaises {
			w.wipes = 1
		}
		all := explore(tt.rules, w)
		require.NotEmpty(t, all.trace, tt.name)
		t.Logf("%s: %d steps, %d states", tt.name, len(all.trace)-1, all.states)
	}
}
