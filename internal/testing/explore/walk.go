// Package explore walks all states of small worlds, and plays scenarios. The tests of the pure
// cores do both with it.
package explore

import (
	"hash/maphash"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

// A Walk reaches all states of a world, breadth first. A state S is a value, and a step changes a
// copy of it.
type Walk[S comparable] struct {
	Steps func(from *S)                                 // calls Step for all that can happen next
	Wrong func(s *S) string                             // returns what is wrong with a state that was just reached, or ""
	Ended func(s *S) bool                               // a way without faults must lead to such a state from each; nil: it need not
	Ends  bool                                          // no way may go on for ever
	Alike int                                           // how many things of a world are alike; 0: none
	Key   func(s *S, key []byte, order [3]uint8) []byte // appends what matters, with the things alike in an order; nil: all does

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
	states int    // whose steps were taken
	wrong  string // "": nothing
	last   origin // of the state that is wrong
}

// limit bounds the states of a walk, since a mistake may make them endless.
const limit = 50_000_000

// A Kind says what a step is.
type Kind uint8

// Kinds of steps.
const (
	Calm    Kind = iota // It happens sooner or later.
	Command             // It is calm, and counts as one of the commands that Test returns.
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

// Step is something that can happen next.
func (w *Walk[S]) Step(from *S, kind Kind, do func(to *S)) {
	step := len(w.kinds)
	w.kinds = append(w.kinds, kind)
	if w.only != all && w.only != step || w.only == all && w.wrong != "" {
		return
	}
	w.to = *from
	do(&w.to)
	if w.only == all {
		w.reach(origin{int32(w.states), int32(step)}, kind)
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
	if w.wrong = w.Wrong(&w.to); w.wrong != "" {
		w.last = o
		return
	}
	hash := w.hash(&w.to)
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

// orders are those of up to three things, those of fewer first.
var orders = [][3]uint8{{0, 1, 2}, {1, 0, 2}, {0, 2, 1}, {2, 1, 0}, {1, 2, 0}, {2, 0, 1}}

// hash returns the same number for states that differ only in the order of things alike.
func (w *Walk[S]) hash(s *S) (sum uint64) {
	if w.Key == nil {
		return maphash.Comparable(w.seed, *s)
	}
	for _, order := range orders[:[]int{1, 1, 2, 6}[w.Alike]] {
		w.key = w.Key(s, w.key[:0], order)
		sum += maphash.Bytes(w.seed, w.key)
	}
	return sum
}

// Test walks from the roots until all was seen. It fails with the shortest way to something that is
// wrong. commands is the most on any way, if Ends is set.
func (w *Walk[S]) Test(t *testing.T, roots ...S) (commands int) {
	t.Helper()
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	w.seed, w.index, w.roots = maphash.MakeSeed(), make(map[uint64]int32), roots
	for i := range roots {
		w.to = roots[i]
		w.reach(origin{-1, int32(i)}, Calm)
	}
	var level []S
	for w.wrong == "" && len(w.next) > 0 {
		level, w.next = w.next, level[:0]
		for i := 0; i < len(level) && w.wrong == ""; i++ {
			if w.Ended != nil && w.Ended(&level[i]) {
				w.ended = append(w.ended, int32(w.states))
			}
			w.kinds, w.only = w.kinds[:0], all
			w.Steps(&level[i])
			w.states++
		}
		if len(w.origin) > limit {
			t.Fatalf("more than %d states", limit)
		}
	}
	if w.wrong == "" {
		commands = w.judge()
	}
	if w.wrong != "" {
		t.Errorf("%s\n%s", w.wrong, w.history())
	}
	t.Log(w.states, "states")
	return commands
}

// history describes the way to the state that is wrong.
func (w *Walk[S]) history() string {
	way := []origin{w.last}
	for o := w.last; o.from >= 0; way = append(way, o) {
		o = w.origin[o.from]
	}
	slices.Reverse(way)
	w.Log = new(strings.Builder)
	s := w.roots[way[0].step]
	for _, o := range way[1:] {
		s = w.Take(&s, int(o.step))
	}
	return w.Log.String()
}

// judge looks at all ways.
func (w *Walk[S]) judge() (commands int) {
	heads, nexts, out := make([]int32, len(w.origin)), make([]int32, len(w.edges)), make([]int32, len(w.origin))
	for i, e := range w.edges { // a list of the edges to each state; 0: its end
		nexts[i], heads[e.to] = heads[e.to], int32(i)+1
		out[e.from]++
	}
	// back visits states, and those before them if pass says so.
	back := func(todo []int32, pass func(e edge) bool) (visited int) {
		for ; len(todo) > 0; visited++ {
			s := todo[len(todo)-1]
			todo = todo[:len(todo)-1]
			for i := heads[s]; i > 0; i = nexts[i-1] {
				if e := w.edges[i-1]; pass(e) {
					todo = append(todo, e.from)
				}
			}
		}
		return visited
	}
	if w.Ends {
		var last []int32
		for s, n := range out {
			if n == 0 {
				last = append(last, int32(s))
			}
		}
		most := make([]int, len(out)) // commands from a state on
		visited := back(last, func(e edge) bool {
			n := most[e.to]
			if e.kind == Command {
				n++
			}
			most[e.from] = max(most[e.from], n)
			out[e.from]--
			return out[e.from] == 0
		})
		if visited < len(out) {
			w.wrong, w.last = "a way without an end", w.origin[slices.IndexFunc(out, func(n int32) bool { return n > 0 })]
			return 0
		}
		commands = slices.Max(most)
	}
	if w.Ended != nil {
		good := make([]bool, len(w.origin))
		for _, s := range w.ended {
			good[s] = true
		}
		back(w.ended, func(e edge) bool {
			fresh := e.kind != Fault && !good[e.from]
			good[e.from] = good[e.from] || fresh
			return fresh
		})
		if s := slices.Index(good, false); s >= 0 {
			w.wrong, w.last = "no way to an end without faults", w.origin[s]
		}
	}
	return commands
}
