package line

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

var seed = flag.Uint64("line.seed", 0, "the seed of the first random sequence; 0 chooses one at random")

// stand returns a line of these callers, and their places.
func stand(callers ...string) (*Line[string], map[string]*Place[string]) {
	l, places := new(Line[string]), make(map[string]*Place[string])
	for _, c := range callers {
		places[c] = &Place[string]{Of: c}
		l.Join(places[c])
	}
	return l, places
}

// rest serves everybody whom a turn may still serve, and returns them.
func rest(l *Line[string], t *Turn) (served []string) {
	for p := l.Serve(t); p != nil; p = l.Serve(t) {
		served = append(served, p.Of)
	}
	return served
}

// waiting returns the callers in a line.
func waiting(l *Line[string]) (callers []string) {
	for p := range l.All() {
		callers = append(callers, p.Of)
	}
	return callers
}

// TestWhoeverComesLaterWaitsForTheNextTurn: a turn serves those who were in line when it began, in order.
func TestWhoeverComesLaterWaitsForTheNextTurn(t *testing.T) {
	l, _ := stand("a", "b", "c")
	turn, first := l.Begin(64)
	require.Equal(t, "a", first.Of)
	l.Join(&Place[string]{Of: "d"})
	require.Equal(t, []string{"b", "c"}, rest(l, &turn))
	require.Equal(t, []string{"d"}, waiting(l))
	_, first = l.Begin(64)
	require.Equal(t, "d", first.Of)
}

// TestServedCallerWaitsForTheNextTurn: a turn serves nobody twice, so it ends.
func TestServedCallerWaitsForTheNextTurn(t *testing.T) {
	l, places := stand("a", "b")
	turn, first := l.Begin(64)
	l.Join(first)
	require.Equal(t, []string{"b"}, rest(l, &turn))
	l.Join(places["b"])
	require.Empty(t, rest(l, &turn))
	_, first = l.Begin(64)
	require.Equal(t, "a", first.Of)
}

// TestCallerWhoLeavesAndReturnsIsBehindTheOthers: a return is a new arrival, also for a turn that has
// begun.
func TestCallerWhoLeavesAndReturnsIsBehindTheOthers(t *testing.T) {
	l, places := stand("a", "b", "c")
	turn, _ := l.Begin(64)
	require.True(t, l.Leave(places["b"]))
	l.Join(places["b"])
	require.Equal(t, []string{"c", "b"}, waiting(l))
	require.Equal(t, []string{"c"}, rest(l, &turn))
}

// TestTurnServesAtMostItsPassesAndOne: the first caller is not a pass.
func TestTurnServesAtMostItsPassesAndOne(t *testing.T) {
	for passes, served := range [][]string{nil, {"b"}, {"b", "c"}, {"b", "c"}} {
		l, _ := stand("a", "b", "c")
		turn, first := l.Begin(passes)
		require.Equal(t, "a", first.Of)
		require.Equal(t, served, rest(l, &turn), "%d passes", passes)
		require.Equal(t, 2-len(served), l.Len())
	}
}

// TestTurnOfAnEmptyLineServesNobody: also if somebody comes while it lasts.
func TestTurnOfAnEmptyLineServesNobody(t *testing.T) {
	var l Line[string]
	turn, first := l.Begin(64)
	require.Nil(t, first)
	l.Join(&Place[string]{Of: "a"})
	require.Empty(t, rest(&l, &turn))
	require.Equal(t, []string{"a"}, waiting(&l))
}

// TestWhoeverLeavesIsNotServed: the others keep their order.
func TestWhoeverLeavesIsNotServed(t *testing.T) {
	for leaver, others := range map[string][]string{"a": {"b", "c"}, "b": {"a", "c"}, "c": {"a", "b"}} {
		l, places := stand("a", "b", "c")
		require.True(t, l.Leave(places[leaver]))
		require.False(t, l.Leave(places[leaver]))
		l.Join(&Place[string]{Of: "d"})
		turn, first := l.Begin(64)
		require.Equal(t, others[0], first.Of, "%s left", leaver)
		require.Equal(t, []string{others[1], "d"}, rest(l, &turn), "%s left", leaver)
	}
}

// TestWhoeverWasServedCannotLeave: Leave reports false to a caller whose ctx ends after it was served, so
// that the lock is used or passed on.
func TestWhoeverWasServedCannotLeave(t *testing.T) {
	l, places := stand("a", "b", "c")
	turn, _ := l.Begin(64)
	require.False(t, l.Leave(places["a"]))
	require.Equal(t, []string{"b", "c"}, waiting(l))
	l.Serve(&turn)
	require.False(t, l.Leave(places["b"]))
	require.Equal(t, []string{"c"}, waiting(l))
}

// TestPlaceThatWasServedHoldsNoOther: a place that is kept keeps no other in memory.
func TestPlaceThatWasServedHoldsNoOther(t *testing.T) {
	l, places := stand("a", "b", "c", "d")
	l.Begin(0)
	l.Leave(places["c"])
	for _, c := range []string{"a", "c"} {
		require.Nil(t, places[c].before, c)
		require.Nil(t, places[c].after, c)
	}
}

// TestLoopMayRemoveWhatItIsGiven: a loop reaches everybody, whoever leaves during it.
func TestLoopMayRemoveWhatItIsGiven(t *testing.T) {
	callers := []string{"a", "b", "c", "d"}
	for set := range 1 << len(callers) {
		l, _ := stand(callers...)
		var seen, kept []string
		for p := range l.All() {
			if set>>len(seen)&1 == 1 {
				l.Leave(p)
			} else {
				kept = append(kept, p.Of)
			}
			seen = append(seen, p.Of)
		}
		require.Equal(t, callers, seen, "%04b left", set)
		require.Equal(t, kept, waiting(l), "%04b left", set)
	}
}

// TestLoopMayEndEarly: the others keep their places.
func TestLoopMayEndEarly(t *testing.T) {
	l, _ := stand("a", "b", "c")
	for p := range l.All() {
		if p.Of == "b" {
			break
		}
		l.Leave(p)
	}
	require.Equal(t, []string{"b", "c"}, waiting(l))
}

// A step is one thing that happens to a line.
type step struct {
	verb string // "join", "leave", "begin" or "serve"
	n    int    // the caller, the passes, or the turn, which counts back from the newest
}

// A world is a line and its model, which take the same steps. The model is made of slices of callers.
type world struct {
	line    Line[int]
	places  []Place[int]
	came    []bool // whether each caller has ever joined
	waiting []int  // in the order of arrival
	turns   []modelTurn
}

// A modelTurn is a turn and its model.
type modelTurn struct {
	turn Turn
	may  []int // those who have been in line since the turn began, in the order of arrival
	left int   // how many of them it may still serve
}

func newWorld(callers int) *world {
	w := &world{places: make([]Place[int], callers), came: make([]bool, callers)}
	w.reset()
	return w
}

// reset begins again, with an empty line.
func (w *world) reset() {
	w.line, w.waiting, w.turns = Line[int]{}, w.waiting[:0], w.turns[:0]
	for i := range w.places {
		w.places[i], w.came[i] = Place[int]{Of: i}, false
	}
}

// take takes a step. It returns how the answer of the line differs from that of the model, or nothing.
func (w *world) take(s step) string {
	switch s.verb {
	case "join":
		w.line.Join(&w.places[s.n])
		w.came[s.n] = true
		w.waiting = append(w.waiting, s.n)
	case "leave":
		was := slices.Contains(w.waiting, s.n)
		w.remove(s.n)
		if left := w.line.Leave(&w.places[s.n]); left != was {
			return fmt.Sprintf("Leave of %d reports %v", s.n, left)
		}
	case "begin":
		m := modelTurn{may: slices.Clone(w.waiting), left: s.n + 1}
		var first *Place[int]
		m.turn, first = w.line.Begin(s.n)
		w.turns = append(w.turns, m)
		return w.served(len(w.turns)-1, first)
	case "serve":
		i := len(w.turns) - 1 - s.n
		return w.served(i, w.line.Serve(&w.turns[i].turn))
	}
	return ""
}

// served serves a caller in the model of a turn, and compares it with the place that the turn has served.
func (w *world) served(turn int, p *Place[int]) string {
	m := &w.turns[turn]
	var want *Place[int]
	if len(m.may) > 0 && m.left > 0 {
		want = &w.places[m.may[0]]
		m.left--
		w.remove(want.Of)
	}
	switch {
	case p == want:
		return ""
	case p == nil:
		return fmt.Sprintf("nobody is served instead of %d", want.Of)
	case want == nil:
		return fmt.Sprintf("%d is served instead of nobody", p.Of)
	}
	return fmt.Sprintf("%d is served instead of %d", p.Of, want.Of)
}

// remove removes a caller from the model.
func (w *world) remove(caller int) {
	is := func(other int) bool { return other == caller }
	w.waiting = slices.DeleteFunc(w.waiting, is)
	for i := range w.turns {
		w.turns[i].may = slices.DeleteFunc(w.turns[i].may, is)
	}
}

// compare returns how Len, Head or All differ from the model, or nothing.
func (w *world) compare() string {
	if n := w.line.Len(); n != len(w.waiting) {
		return fmt.Sprintf("Len is %d and not %d", n, len(w.waiting))
	}
	var head *Place[int]
	if len(w.waiting) > 0 {
		head = &w.places[w.waiting[0]]
	}
	if w.line.Head() != head {
		return "Head is another"
	}
	seen := 0
	for p := range w.line.All() {
		if seen == len(w.waiting) || p != &w.places[w.waiting[seen]] {
			return fmt.Sprintf("All has %d as number %d", p.Of, seen)
		}
		seen++
	}
	if seen < len(w.waiting) {
		return fmt.Sprintf("All has only %d", seen)
	}
	return ""
}

// check has every caller who is not in line leave once more, and compares the line with the model. It returns what is
// wrong, or nothing.
func (w *world) check() string {
	for i := range w.places {
		if !slices.Contains(w.waiting, i) {
			if wrong := w.take(step{"leave", i}); wrong != "" {
				return wrong
			}
		}
	}
	return w.compare()
}

// possible returns the steps that may come next. Turns begin with up to so many passes, and only so many of the newest
// serve. Callers are alike, so they first join in the order of their numbers.
func (w *world) possible(passes, turns int) []step {
	steps := make([]step, 0, len(w.places)+passes+1+turns)
	for i := range w.places {
		if slices.Contains(w.waiting, i) {
			steps = append(steps, step{"leave", i})
			continue
		}
		steps = append(steps, step{"join", i})
		if !w.came[i] {
			break
		}
	}
	for n := range passes + 1 {
		steps = append(steps, step{"begin", n})
	}
	for i := range min(turns, len(w.turns)) {
		steps = append(steps, step{"serve", i})
	}
	return steps
}

// TestLineAgreesWithItsModelInEveryShortSequence: Three callers join and leave at every instant,
// also while two turns serve. The first sequence that fails is one of the shortest.
func TestLineAgreesWithItsModelInEveryShortSequence(t *testing.T) {
	const steps = 8
	w, sequences := newWorld(3), 0
	var explore func(path []step, depth int)
	explore = func(path []step, depth int) {
		w.reset()
		wrong := ""
		for _, s := range path {
			wrong = w.take(s) // only the last may be wrong, since all shorter sequences have passed
		}
		if depth > 0 {
			for _, s := range w.possible(2, 2) {
				explore(append(path, s), depth-1)
			}
			return
		}
		sequences++
		if wrong == "" {
			wrong = w.check()
		}
		if wrong != "" {
			require.FailNow(t, wrong, "%v", path)
		}
	}
	for depth := range steps + 1 {
		explore(make([]step, 0, depth), depth)
	}
	t.Logf("%d sequences", sequences)
}

// TestLineAgreesWithItsModelInRandomSequences: with more callers and more turns. At the end of each
// sequence a turn serves everybody who still waits. Sequence i has the seed -line.seed + i.
func TestLineAgreesWithItsModelInRandomSequences(t *testing.T) {
	first := *seed
	if first == 0 {
		first = rand.Uint64()
	}
	t.Logf("-line.seed %d", first)
	for i := range uint64(1000) {
		random := rand.New(rand.NewPCG(first+i, 0))
		w := newWorld(8)
		var path []step
		next := func(s step) {
			path = append(path, s)
			wrong := w.take(s)
			if wrong == "" {
				wrong = w.check()
			}
			if wrong != "" {
				require.FailNow(t, wrong, "-line.seed %d: %v", first+i, path)
			}
		}
		for range 100 {
			steps := w.possible(6, 4)
			next(steps[random.IntN(len(steps))])
		}
		next(step{"begin", len(w.places)})
		for len(w.waiting) > 0 {
			next(step{"serve", 0})
		}
	}
}
