package quorum

import (
	"testing"

	"github.com/redlatch/redlatch/internal/explore"
)

// Each mistake is planted outside of the core: in what it wants, in what it is told, or in the scripts.
var mistakes = []struct {
	name  string
	finds string
	world world
	x     explorer
	large bool
}{
	{"half of the nodes are a quorum", "done by less than a quorum", newWorld(3, 2, faults()), explorer{need: 1}, false},
	{"a refusal counts as a grant", "done by less than a quorum", newWorld(3, 2, faults()), explorer{answer: func(_ *try, _ *Effect, a *Answer) {
		if a.Outcome == Held {
			a.Outcome, a.Vote = Done, 1
		}
	}}, false},
	{"a restored node counts", "done by less than a quorum", loose(1, faults(renewals, vanishes, vanishes)), explorer{answer: func(_ *try, _ *Effect, a *Answer) {
		if a.Outcome == Restored {
			a.Outcome = Done
		}
	}}, false},
	{"an answer counts for a later extension", "done by less than a quorum", newWorld(3, 1, faults(renewals, renewals)), explorer{answer: func(t *try, e *Effect, _ *Answer) {
		if e.Step == Restore {
			e.Op = &t.ops[t.begun-1]
		}
	}}, false},
	{"the largest vote is the fence", "a fence that does not grow", newWorld(3, 2, faults(), 0, 1, 2), explorer{effects: func(t *try, out []Effect) []Effect {
		for i := 0; i < len(out); i++ {
			if e := out[i]; e.Step == Raise {
				out = append(out[:i], out[i+1:]...)
				out = t.token.Answer(e, Answer{Outcome: Done, Vote: e.Fence}, out)
				i--
			}
		}
		return out
	}}, false},
	{"the smallest vote is the fence", "a fence that does not grow", newWorld(3, 2, faults(), 0, 1, 2), explorer{effects: func(_ *try, out []Effect) []Effect {
		for _, e := range out {
			if e.Step == Finish && e.Op.step == Acquire && e.Op.result == OK {
				for i := range e.Op.nodes {
					if m := &e.Op.nodes[i]; m.Outcome == Done {
						e.Op.fence = min(e.Op.fence, m.Vote-min(m.asked, 1))
					}
				}
			}
		}
		return out
	}}, false},
	{"a node that does not hold the key is raised", "a fence that does not grow", loose(2, faults(vanishes)), explorer{raisesAll: true}, false},
	{"a higher counter agrees", "a fence that does not grow", loose(2, faults(vanishes, twice)), explorer{answer: func(_ *try, e *Effect, a *Answer) {
		if e.Step == Raise && a.Outcome == Done {
			a.Vote = e.Fence
		}
	}}, true},
	{"a release overtakes its acquire", "a key stays after all has ended", newWorld(3, 2, faults()), explorer{answer: func(t *try, e *Effect, _ *Answer) {
		if e.Step == Acquire {
			t.token.nodes[e.Node].creating++
		}
	}, effects: func(t *try, out []Effect) []Effect {
		for _, e := range out {
			if e.Step == Acquire {
				t.token.nodes[e.Node].creating = 0
			}
		}
		return out
	}}, false},
	{"an unknown grant is not released", "a key stays after all has ended", newWorld(3, 2, faults(lostReply, lostReply)), explorer{effects: func(_ *try, out []Effect) []Effect {
		kept := out[:0]
		for _, e := range out {
			if e.Step != Release || e.Op.step != Acquire || e.Op.Outcome(e.Node) != Failed {
				kept = append(kept, e)
			}
		}
		return kept
	}}, false},
	{"a lock that is being released is restored", "a key stays after all has ended", newWorld(3, 1, faults(renewals)), explorer{restores: true}, false},
	{"an acquire is carried out after its timeout", "a key stays after all has ended", newWorld(3, 1, faults(lostReply)), explorer{late: true}, false},
	{"earlier sends are forgotten", "a key stays after all has ended", newWorld(3, 2, faults(twice)), explorer{unsettled: true}, false},
	{"a node that restarts empty does not stay away", "two owners", newWorld(3, 2, faults(wipes)), explorer{returns: true}, false},
}

// loose returns a world in which keys may vanish, with unequal counters.
func loose(clients int, b budget) world {
	w := newWorld(3, clients, b, 0, 1, 1)
	w.loose = true
	return w
}

func TestPlantedMistakesAreFound(t *testing.T) {
	for _, tt := range mistakes {
		t.Run(tt.name, func(t *testing.T) {
			if size := explore.Chosen(); size == explore.Small || tt.large && size != explore.Wide {
				t.Skip("too large with -short or the race detector, or without -wide")
			}
			x := tt.x
			f := x.world().Explore(tt.world)
			if f.Wrong != tt.finds {
				t.Errorf("found %q, want %q", f.Wrong, tt.finds)
			}
			t.Logf("%s, %v:\n%s", f.Wrong, f, f.History)
		})
	}
}
