package quorum

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/redlatch/redlatch/internal/testing/explore"
)

// An explorer walks all states of a world, breadth first.
type explorer struct {
	explore.Walk[world]
	from *world
	seen map[string]bool // results
}

// world returns the walk. A copy of x must not be used with it.
func (x *explorer) world(clients int) *explore.Walk[world] {
	x.Walk = explore.Walk[world]{
		Steps: x.steps, Alike: clients, Key: (*world).key, Wrong: (*world).check, Ended: (*world).finished, Ends: true,
	}
	return &x.Walk
}

// add is something that can happen next: of a try, or -1, and on a node, or -1.
func (x *explorer) add(kind explore.Kind, i, node int, step Step, what string, f func(w *world, t *try)) {
	x.Step(x.from, kind, func(w *world) {
		if x.Log != nil {
			if i >= 0 {
				fmt.Fprintf(x.Log, "%c ", 'a'+i)
			}
			if node >= 0 {
				fmt.Fprintf(x.Log, "n%d %s ", node+1, stepNames[step])
			}
			fmt.Fprintln(x.Log, what)
		}
		var t *try
		if i >= 0 {
			t = w.own(i)
		}
		f(w, t)
		for j, other := range w.tries {
			switch {
			case j == i:
				w.tidy(j)
			case other != nil && node >= 0 && other.leftovers():
				w.own(j)
				w.tidy(j)
			}
		}
	})
}

func (x *explorer) calm(i, node int, step Step, what string, f func(w *world, t *try)) {
	x.add(explore.Calm, i, node, step, what, f)
}

// spend is a fault, or something else that is bounded.
func (x *explorer) spend(k kind, i, node int, step Step, what string, f func(w *world, t *try)) {
	if x.from.left[k] > 0 {
		x.add(explore.Fault, i, node, step, what, func(w *world, t *try) {
			w.left[k]--
			if w.total--; w.total == 0 {
				w.budget = budget{}
			}
			w.faulty = true
			f(w, t)
		})
	}
}

// steps has all that can happen next.
func (x *explorer) steps(w *world) {
	x.from = w
	for i, t := range w.tries {
		if t == nil {
			continue
		}
		x.client(w, i, t)
		for k, m := range t.msgs {
			if k == 0 || !slices.Contains(t.msgs[:k], m) {
				x.command(w, i, k, m)
			}
		}
		mayExpire := t.dead || t.lapsed || t.phase == over && t.unheard != 0
		for n := range w.size {
			if mayExpire && int(w.nodes[n].holder) == i+1 && !t.releases(n) { // a release that is carried out is the same step
				x.calm(i, n, Finish, "key expires", func(c *world, _ *try) { c.nodes[n].holder = 0 })
			}
		}
	}
	for n := range w.size {
		x.restart(w, n)
		if w.nodes[n].holder != 0 {
			x.spend(vanishes, -1, n, Finish, "key vanishes", func(c *world, _ *try) { c.nodes[n].holder = 0 })
		}
	}
}

// client has the steps that a client begins.
func (x *explorer) client(w *world, i int, t *try) {
	if t.dead {
		return
	}
	switch t.phase {
	case idle:
		if i > 0 && w.tries[i-1].phase == idle { // idle clients are all the same
			return
		}
		acquire := func(silent uint64) func(c *world, t *try) {
			return func(c *world, t *try) { t.phase = asking; x.begin(c, i, Acquire, silent) }
		}
		x.calm(i, -1, 0, "acquires", acquire(0))
		for n := range w.size {
			x.spend(silence, i, n, 0, "was silent, and it acquires", acquire(1<<n))
		}
		return
	case holding:
		x.calm(i, -1, 0, "releases", func(c *world, t *try) {
			t.phase, t.must = leaving, 0
			x.begin(c, i, Release, 0)
		})
		x.spend(renewals, i, -1, 0, "renews", func(c *world, t *try) {
			c.faulty = w.faulty
			x.begin(c, i, Restore, 0)
			for k := range t.msgs {
				if t.msgs[k].step == Extend || t.msgs[k].step == Restore {
					t.msgs[k].fence = t.fence
				}
			}
		})
		x.spend(adoptions, i, -1, 0, "is adopted", func(c *world, _ *try) { c.faulty = w.faulty; x.begin(c, i, Mint, 0) })
	}
	if t.phase == asking && t.token.release == nil {
		x.spend(gone, i, -1, 0, "releases early", func(c *world, t *try) {
			t.phase, t.must = leaving, 0
			x.begin(c, i, Release, 0)
		})
	}
	if (t.phase == asking || t.phase == holding) && !t.lapsed {
		x.spend(lapses, i, -1, 0, "has a lease that ends", func(c *world, t *try) {
			t.lapsed, t.must = true, 0
			if t.phase == holding {
				t.phase = leaving
				x.begin(c, i, Release, 0)
			}
		})
	}
	if t.phase < over {
		x.spend(crashes, i, -1, 0, "crashes", func(_ *world, t *try) { t.dead, t.must = true, 0; t.live = [mostOps]bool{} })
	}
}

// command has the steps of a command under way, or of its answer.
func (x *explorer) command(w *world, i, k int, m msg) {
	n := int(m.node)
	up := !w.nodes[n].away
	switch m.state {
	case sent, orphan:
		if up {
			x.calm(i, n, m.step, "is carried out", func(c *world, t *try) {
				a := x.carryOut(c, i, m)
				if m.state == orphan {
					t.msgs = slices.Delete(t.msgs, k, k+1)
					return
				}
				t.msgs[k].state, t.msgs[k].got, t.msgs[k].vote = answered, a.Outcome, a.Vote
				if m.step == Release { // when its answer comes is of no consequence to others
					x.give(c, i, k, a)
				}
			})
		}
	case answered:
		x.calm(i, n, m.step, "is answered", func(c *world, t *try) {
			if m.open {
				t.msgs = append(t.msgs, m.as(settling))
			}
			x.give(c, i, k, Answer{Outcome: m.got, Vote: m.vote})
		})
	case settling:
		x.calm(i, n, m.step, "has no earlier send left", func(c *world, t *try) {
			t.msgs = slices.Delete(t.msgs, k, k+1)
			t.tooLate(m)
			x.run(c, i, func(t *try, out []Effect) []Effect { return t.token.Settled(n, out) })
		})
	}
	if m.state == orphan && (w.tries[i].dead || !up) {
		x.calm(i, n, m.step, "is never carried out", func(_ *world, t *try) { t.msgs = slices.Delete(t.msgs, k, k+1) })
	}
	if m.state > answered {
		return
	}
	if m.state == sent && !up {
		x.calm(i, n, m.step, "times out at a node that is away", func(c *world, _ *try) { x.timeOut(c, i, k) })
	}
	x.spend(lostReply, i, n, m.step, "times out", func(c *world, _ *try) { x.timeOut(c, i, k) })
	if m.state == answered {
		return
	}
	x.spend(lostCommand, i, n, m.step, "is lost", func(c *world, t *try) {
		if m.step == Release {
			t.unheard |= 1 << n
		}
		if m.open {
			t.tooLate(m)
		}
		x.give(c, i, slices.Index(t.msgs, m), Answer{Outcome: Failed})
	})
	x.spend(twice, i, n, m.step, "is sent twice", func(_ *world, t *try) {
		t.msgs[k].open = m.step.Creates()
		t.msgs = append(t.msgs, m.as(orphan))
	})
	if m.step == Acquire && !m.open {
		x.spend(unsent, i, n, m.step, "is not sent", func(c *world, _ *try) { x.give(c, i, k, Answer{Outcome: NotHeld}) })
	}
	if m.step.Creates() {
		x.spend(failsEarly, i, n, m.step, "fails early", func(c *world, t *try) {
			t.msgs = append(t.msgs, m.as(orphan), m.as(settling))
			x.give(c, i, k, Answer{Outcome: Failed})
		})
	}
}

// restart has the restarts of a node. Its clock keeps its counter from falling.
func (x *explorer) restart(w *world, n int) {
	floor := func(w *world) (c uint64) {
		for i := range w.size {
			c = max(c, w.nodes[i].counter)
		}
		return c
	}
	if !w.nodes[n].away {
		x.spend(wipes, -1, n, Finish, "restarts empty", func(c *world, _ *try) {
			c.wiped = true
			c.nodes[n] = node{counter: floor(w), away: true}
			for i, t := range c.tries {
				if t != nil && !t.dead && (t.phase == asking || t.phase == holding) {
					c.own(i).must |= 1 << n
				}
			}
		})
		return
	}
	for _, t := range w.tries {
		if t != nil && t.must&(1<<n) != 0 {
			return
		}
	}
	x.calm(-1, n, Finish, "comes back", func(c *world, _ *try) { c.nodes[n] = node{counter: floor(w)} })
}

// faults allows each of them.
func faults(of ...kind) (b budget) {
	b.total = int8(len(of))
	for _, k := range of {
		b.left[k]++
	}
	return b
}

// oneOf allows one of them.
func oneOf(of ...kind) budget {
	b := faults(of...)
	b.total = 1
	return b
}

// loose returns a world in which keys may vanish, with unequal counters.
func loose(clients int, b budget) world {
	w := newWorld(3, clients, b, 0, 1, 1)
	w.loose = true
	return w
}

func TestNoHistoryBreaksAnInvariant(t *testing.T) {
	var mu sync.Mutex // guards seen
	seen := make(map[string]bool)
	t.Run("worlds", func(t *testing.T) {
		for _, tt := range []struct {
			name  string
			size  explore.Size
			roots []world
		}{
			{"two clients", explore.Small, []world{newWorld(3, 2, faults()), newWorld(3, 2, faults(), 0, 1, 2)}},
			{"two clients, and a fault", explore.Usual, []world{
				newWorld(3, 2, oneOf(failsEarly, crashes, lapses, gone, silence, wipes, unsent, lostReply, lostCommand)),
			}},
			{"one client, and two faults", explore.Usual, []world{
				newWorld(3, 1, faults(twice, lostReply)), newWorld(3, 1, faults(renewals, lostReply)),
				newWorld(3, 1, faults(lapses, renewals)), newWorld(3, 1, faults(gone, unsent)),
				newWorld(3, 1, faults(adoptions, lostReply), 0, 1, 2),
			}},
			{"keys that vanish", explore.Usual, []world{loose(2, faults(vanishes))}},
			{"five nodes", explore.Usual, []world{newWorld(5, 1, oneOf(lostReply, renewals))}},
			{"one client, and three faults", explore.Wide, []world{
				newWorld(3, 1, faults(twice, twice, lostReply)), newWorld(3, 1, faults(failsEarly, failsEarly, renewals)),
				newWorld(3, 1, faults(renewals, lostReply, lostReply)), newWorld(3, 1, faults(renewals, renewals, lostCommand)),
				newWorld(3, 1, faults(lapses, renewals, lostReply)), newWorld(3, 1, faults(gone, lostReply, twice)), newWorld(3, 1, faults(unsent, twice, renewals)), newWorld(3, 1, faults(unsent, gone, unsent)),
			}},
			{"two clients, and a command sent twice or a renewal", explore.Wide, []world{newWorld(3, 2, oneOf(twice, renewals))}},
			{"a lost reply and a lost command", explore.Wide, []world{newWorld(3, 2, faults(lostReply, lostCommand))}},
			{"three clients", explore.Wide, []world{newWorld(3, 3, faults())}},
			{"five nodes, two clients", explore.Wide, []world{newWorld(5, 2, faults())}},
			{"two replies lost", explore.Wide, []world{newWorld(3, 2, faults(lostReply, lostReply), 0, 1, 2)}},
			{"a renewal and a lost reply", explore.Wide, []world{newWorld(3, 2, faults(renewals, lostReply))}},
			{"an early failure and a lost reply", explore.Wide, []world{newWorld(3, 2, faults(failsEarly, lostReply))}},
			{"a crash and a lost reply", explore.Wide, []world{newWorld(3, 2, faults(crashes, lostReply))}},
			{"a restart and a renewal", explore.Wide, []world{newWorld(3, 2, faults(wipes, renewals))}},
			{"an adoption", explore.Wide, []world{newWorld(3, 2, faults(adoptions))}},
			{"unequal counters, and a fault", explore.Wide, []world{newWorld(3, 2, oneOf(twice, lapses, renewals), 0, 1, 2)}},
			{"keys that vanish, and a command sent twice", explore.Wide, []world{loose(2, faults(vanishes, twice))}},
		} {
			t.Run(tt.name, func(t *testing.T) {
				if explore.Chosen() < tt.size {
					t.Skip("too large with -short or the race detector, or without -wide")
				}
				explore.Parallel(t)
				x := explorer{seen: make(map[string]bool)}
				x.world(tt.roots[0].clients).Test(t, tt.roots...)
				mu.Lock()
				defer mu.Unlock()
				maps.Copy(seen, x.seen)
			})
		}
	})
	if explore.Chosen() == explore.Small {
		return
	}
	if len(seen) != 17 {
		t.Error("some results were seen in no history: ", seen)
	}
}
