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
	byKey   map[string]*keyLine   // the next to join. The lines of a key are a ring
	waiting map[*keyLine]struct{} // those that use the subscription
	tokens  map[string]*attempt   // that a release may hand the key to
	pulse   line.Pulse
}

func newLines() lines {
	return lines{
		byKey: make(map[string]*keyLine), waiting: make(map[*keyLine]struct{}), tokens: make(map[string]*attempt),
	}
}

// removeLocked takes a line out of the ring of its key.
func (l *lines) removeLocked(w *keyLine) {
	key, before := w.request.names.lock, w
	for before.next != w {
		before = before.next
	}
	if before == w {
		delete(l.byKey, key)
	} else {
		before.next = w.next
		if l.byKey[key] == w {
			l.byKey[key] = w.next
		}
	}
	w.next = nil
}

// addLocked adds a line to the ring of its key, behind those of before.
func (l *lines) addLocked(w *keyLine) {
	first := l.byKey[w.request.names.lock]
	if first == nil {
		l.byKey[w.request.names.lock], w.next = w, w
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
	for _, w := range e.lines.byKey {
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
