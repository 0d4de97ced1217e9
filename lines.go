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
	rings   map[ringID]*keyLine   // the next to join of each ring
	waiting map[*keyLine]struct{} // those that use the subscription
	tokens  map[string]*attempt   // that a release may hand the key to
	pulse   line.Pulse
}

// A ringID says which callers stand in the lines of a ring: those of a key, with a limit.
type ringID struct {
	lock  string
	limit int
}

// ring returns that of the lines in which r may stand.
func (r *request) ring() ringID { return ringID{r.names.lock, r.cfg.limit} }

func newLines() lines {
	return lines{
		rings: make(map[ringID]*keyLine), waiting: make(map[*keyLine]struct{}), tokens: make(map[string]*attempt),
	}
}

// removeLocked takes a line out of its ring.
func (l *lines) removeLocked(w *keyLine) {
	id, before := w.request.ring(), w
	for before.next != w {
		before = before.next
	}
	if before == w {
		delete(l.rings, id)
	} else {
		before.next = w.next
		if l.rings[id] == w {
			l.rings[id] = w.next
		}
	}
	w.next = nil
}

// addLocked adds a line to its ring, behind the next to join.
func (l *lines) addLocked(w *keyLine) {
	id := w.request.ring()
	first := l.rings[id]
	if first == nil {
		l.rings[id], w.next = w, w
		return
	}
	first.next, w.next = w, first.next
}

// String describes the lines of a Locker, for the report of a bug: it is what fmt prints of the
// Locker. It shows no token.
func (e *engine) String() string {
	e.lines.mu.Lock()
	defer e.lines.mu.Unlock()
	all := maps.Clone(e.lines.waiting)
	for _, w := range e.lines.rings {
		for _, known := all[w]; !known; _, known = all[w] {
			all[w] = struct{}{}
			w = w.next
		}
	}
	var text []string
	for w := range all {
		text = append(text, fmt.Sprintf("\n\t%q: %v", w.request.names.lock, &w.machine))
	}
	slices.Sort(text)
	return e.name + strings.Join(text, "")
}

// Format prints what String returns, whatever the verb is.
func (e *engine) Format(f fmt.State, verb rune) {
	_, _ = fmt.Fprintf(f, fmt.FormatString(f, verb), e.String())
}
