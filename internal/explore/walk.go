// Package explore walks all states of small worlds, and plays scenarios. The tests of the pure cores do both with it.
package explore

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

// A Walk reaches all states of a world, breadth first. A state S is a value, and a step changes a copy of it.
type Walk[S any] struct {
	Steps func(from *S)                 // calls Step for all that can happen next
	Key   func(s *S, key []byte) []byte // appends to key what states have in common that count as one
	Wrong func(s *S) string             // returns what is wrong with a state that was just reached, or ""
	Ended func(s *S) bool               // from each state, a way without faults must lead to one that has ended; nil: it need not
	Ends  bool                          // no way may go on for ever
	Limit int                           // of states; 0: there is none

	Log *strings.Builder // takes what a step does; nil if nobody reads it

	kinds  []Kind // of the steps from the current state, so far
	only   int    // step to take
	to     S      // where the newest step has led
	seed   maphash.Seed
	key    []byte
	index  map[uint64]int32 // numbers of states, by hashes of their keys
	origin []origin         // of each state
	roots  []S
	next   []S // what was found at the end of the ways walked so far
	edges  []edge
	ended  []int32
	found  Found
}

// A Kind says what a step is.
type Kind uint8

// Kinds of steps.
const (
	Calm    Kind = iota // It happens sooner or later.
	Command             // It is calm, and counts in Found.Commands.
	Fault               // It may happen or not.
)

const (
	all  = -1
	none = -2
)

// An origin is the step by which a state was found first. That of a root is from -1.
type origin struct{ from, step int32 }

type edge struct {
	from, to int32
	kind     Kind
}

// Found is what a walk has found.
type Found struct {
	States   int
	Commands int    // the most on any way, if Ends is set
	Wrong    string // "": nothing
	History  string // the shortest way to that
}

// Step is something that can happen next.
func (w *Walk[S]) Step(from *S, kind Kind, do func(to *S)) {
	step := len(w.kinds)
	w.kinds = append(w.kinds, kind)
	if w.only != all && w.only != step || w.only == all && w.found.Wrong != "" {
		return
	}
	w.to = *from
	do(&w.to)
	if w.only == all {
		w.reach(origin{int32(w.found.States), int32(step)}, kind)
	}
}

// Kinds returns the kinds of the steps from a state.
func (w *Walk[S]) Kinds(from *S) []Kind {
	w.kinds, w.only = w.kinds[:0], none
	w.Steps(from)
	return w.kinds
}

// Take takes one of these steps.
func (w *Walk[S]) Take(from *S, step int) S {
	w.kinds, w.only = w.kinds[:0], step
	w.Steps(from)
	return w.to
}

// reach notes the state to which a step has led.
func (w *Walk[S]) reach(o origin, kind Kind) {
	if w.found.Wrong = w.Wrong(&w.to); w.found.Wrong != "" {
		w.found.History = w.history(o)
		return
	}
	w.key = w.Key(&w.to, w.key[:0])
	hash := maphash.Bytes(w.seed, w.key)
	n, known := w.index[hash]
	if !known {
		n = int32(len(w.origin))
		w.index[hash] = n
		w.origin = append(w.origin, o)
		w.next = append(w.next, w.to)
	}
	if o.from >= 0 && (w.Ends || w.Ended != nil && kind != Fault) {
		w.edges = append(w.edges, edge{o.from, n, kind})
	}
}

// Explore walks from the roots until all was seen, or something is wrong.
func (w *Walk[S]) Explore(roots ...S) Found {
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	w.seed, w.index, w.roots, w.found = maphash.MakeSeed(), make(map[uint64]int32), roots, Found{}
	w.origin, w.edges, w.ended, w.next = nil, nil, nil, nil
	for i := range roots {
		w.to = roots[i]
		w.reach(origin{-1, int32(i)}, Calm)
	}
	var level []S
	for w.found.Wrong == "" && len(w.next) > 0 {
		level, w.next = w.next, level[:0]
		for i := 0; i < len(level) && w.found.Wrong == ""; i++ {
			if w.Ended != nil && w.Ended(&level[i]) {
				w.ended = append(w.ended, int32(w.found.States))
			}
			w.kinds, w.only = w.kinds[:0], all
			w.Steps(&level[i])
			w.found.States++
		}
		if w.found.Wrong == "" && w.Limit > 0 && len(w.origin) > w.Limit {
			w.found.Wrong = fmt.Sprintf("more than %d states", w.Limit)
		}
	}
	if w.found.Wrong == "" {
		w.judge()
	}
	w.index, w.origin, w.edges, w.next = nil, nil, nil, nil
	return w.found
}

// Test explores, and fails if something is wrong.
func (w *Walk[S]) Test(t *testing.T, roots ...S) Found {
	t.Helper()
	f := w.Explore(roots...)
	if f.Wrong != "" {
		t.Errorf("%s\n%s", f.Wrong, f.History)
	}
	t.Log(f.States, "states")
	return f
}

// history describes the way to a state.
func (w *Walk[S]) history(last origin) string {
	way := []origin{last}
	for ; last.from >= 0; way = append(way, last) {
		last = w.origin[last.from]
	}
	slices.Reverse(way)
	w.Log = new(strings.Builder)
	s := w.roots[way[0].step]
	for _, o := range way[1:] {
		s = w.Take(&s, int(o.step))
	}
	text := w.Log.String()
	w.Log = nil
	return text
}

// judge looks at all ways.
func (w *Walk[S]) judge() {
	if w.Ends {
		if w.found.Commands = w.longest(); w.found.Commands < 0 {
			w.found.Wrong = "a way without an end"
			return
		}
	}
	if n := w.stuck(); n >= 0 {
		w.found.Wrong, w.found.History = "no way to an end without faults", w.history(w.origin[n])
	}
}

// stuck returns the first state from which no way without faults leads to one that has ended, or -1.
func (w *Walk[S]) stuck() int {
	if w.Ended == nil {
		return -1
	}
	heads, nexts := make([]int32, len(w.origin)), make([]int32, len(w.edges)) // of the edges to a state; 0: none
	for i, e := range w.edges {
		if e.kind != Fault {
			nexts[i], heads[e.to] = heads[e.to], int32(i)+1
		}
	}
	good := make([]bool, len(w.origin))
	for _, s := range w.ended {
		good[s] = true
	}
	for todo := slices.Clone(w.ended); len(todo) > 0; {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for i := heads[s]; i > 0; i = nexts[i-1] {
			if from := w.edges[i-1].from; !good[from] {
				good[from] = true
				todo = append(todo, from)
			}
		}
	}
	return slices.Index(good, false)
}

// longest returns the most commands on any way, or -1 if a way has no end.
func (w *Walk[S]) longest() (commands int) {
	into, first := make([]int32, len(w.origin)), make([]int32, len(w.origin)+1) // the edges are in the order of their states
	for _, e := range w.edges {
		into[e.to]++
		first[e.from+1]++
	}
	var todo []int32
	for s := range into {
		first[s+1] += first[s]
		if into[s] == 0 {
			todo = append(todo, int32(s))
		}
	}
	run, done := make([]int, len(into)), 0
	for ; len(todo) > 0; done++ {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		commands = max(commands, run[s])
		for _, e := range w.edges[first[s]:first[s+1]] {
			n := run[s]
			if e.kind == Command {
				n++
			}
			run[e.to] = max(run[e.to], n)
			if into[e.to]--; into[e.to] == 0 {
				todo = append(todo, e.to)
			}
		}
	}
	if done < len(into) {
		return -1
	}
	return commands
}

// orders are those of up to three things, those of fewer first.
var orders = [][3]uint8{{0, 1, 2}, {1, 0, 2}, {0, 2, 1}, {2, 1, 0}, {1, 2, 0}, {2, 0, 1}}

// Least appends the least of the keys that a state has in the orders of n things that are alike. It leaves empty keys out.
func Least(b []byte, n int, key func(b []byte, order [3]uint8) []byte) []byte {
	start, least := len(b), len(b)
	for _, order := range orders[:[]int{1, 1, 2, 6}[n]] {
		end := len(b)
		b = key(b, order)
		if len(b) > end && (least == start || bytes.Compare(b[end:], b[start:least]) < 0) {
			least = start + copy(b[start:], b[end:])
		}
		b = b[:least]
	}
	return b
}
