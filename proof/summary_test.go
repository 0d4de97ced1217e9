package proof

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch/proof/history"
)

// summary has the figures of an episode.
type summary struct {
	ops, grants, passes, losses, unknown int
	longest                              time.Duration // wait for a grant
	struck                               map[string]int
}

func (e *episode) summary() summary {
	s := summary{ops: len(e.history), struck: e.struck}
	for _, op := range e.history {
		switch {
		case op.Unknown:
			s.unknown++
		case op.Kind == history.Grant:
			s.grants++
			s.longest = max(s.longest, time.Duration(op.Return-op.Call))
		case op.Kind == history.Loss:
			s.losses++
		case op.Passed:
			s.passes++
		}
	}
	return s
}

func (s summary) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d operations, %d grants, %d of them passed on, %d unknown outcomes, %d losses seen, longest wait %v, faults:",
		s.ops, s.grants, s.passes, s.unknown, s.losses, s.longest.Round(time.Millisecond))
	for _, name := range slices.Sorted(maps.Keys(s.struck)) {
		fmt.Fprintf(&b, " %s %d,", name, s.struck[name])
	}
	return strings.TrimSuffix(b.String(), ",")
}

// plus adds two summaries.
func (s summary) plus(o summary) summary {
	sum := summary{
		ops: s.ops + o.ops, grants: s.grants + o.grants, passes: s.passes + o.passes, losses: s.losses + o.losses, unknown: s.unknown + o.unknown,
		longest: max(s.longest, o.longest), struck: make(map[string]int),
	}
	maps.Copy(sum.struck, s.struck)
	for name, n := range o.struck {
		sum.struck[name] += n
	}
	return sum
}
