package redlatch

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/redlatch/redlatch/internal/line"
)

// lines has the lines of one Locker.
type lines struct {
	mu      sync.Mutex            // guards the fields below, all lines, and the requests in them
	shared  map[lineID]*keyLine   // of callers without options of their own
	waiting map[*keyLine]struct{} // those that use the subscription
	broken  bool                  // the subscription broke, and is not confirmed again
	tokens  tokens
	pulse   line.Pulse
}

// A lineID says which callers stand in a line: those of a key, with a limit. Callers of permits have
// several lines, see lanes.
type lineID struct {
	lock        string
	limit, lane int
}

// ownLane is the lane of a line that is not shared: its callers have options of their own.
const ownLane = -1

func newLines() lines {
	return lines{
		shared: make(map[lineID]*keyLine), waiting: make(map[*keyLine]struct{}),
		tokens: tokens{used: make(map[uint64]*attempt)},
	}
}

// locked calls do with the mutex locked.
func (l *lines) locked(do func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	do()
}

// shortestLocked returns the line of a key and a limit to join, of a number of lanes: one that is not there
// yet, or else the shortest. used is how many lanes have one.
func (l *lines) shortestLocked(id lineID, lanes int) (shortest lineID, used int) {
	shortest = id
	for id.lane = range lanes {
		w := l.shared[id]
		if w != nil {
			used++
		}
		if best := l.shared[shortest]; best != nil && (w == nil || w.machine.Length() < best.machine.Length()) {
			shortest = id
		}
	}
	return shortest, used
}

// String describes the lines of a Locker, for the report of a bug: it is what fmt prints of the
// Locker. It shows no token.
func (e *engine) String() string {
	e.lines.mu.Lock()
	defer e.lines.mu.Unlock()
	all := maps.Clone(e.lines.waiting)
	for _, w := range e.lines.shared {
		all[w] = struct{}{}
	}
	var text []string
	for w := range all {
		text = append(text, fmt.Sprintf("\n\t%q: %v", w.request.names.lock, &w.machine))
	}
	slices.Sort(text)
	return string(e.name) + strings.Join(text, "")
}

// Format prints what String returns, whatever the verb is.
func (e *engine) Format(f fmt.State, verb rune) {
	_, _ = fmt.Fprintf(f, fmt.FormatString(f, verb), e.String())
}
