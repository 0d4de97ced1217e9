package quorum

import (
	"flag"
	"fmt"
	"hash/maphash"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/redistest"
)

// An explorer walks all states of a world, breadth first. The fields are mistakes that a test plants.
type explorer struct {
	stays bool // a node that restarts empty stays away until no lease rests on what it had

	need      int                                 // how many nodes are a quorum
	late      bool                                // what creates may be carried out after its timeout
	raisesAll bool                                // a node raises its counter whoever holds the key
	effects   func(t *try, out []Effect) []Effect // changes what the core wants
	answer    func(t *try, e *Effect, a *Answer)  // changes what the core is told
	restores  bool                                // a lock that is being released may be restored
	unsettled bool                                // Settled is not called
	seen      map[string]int                      // results
	seed      maphash.Seed
	limit     int
}

// A label says what a step did.
type label struct {
	what string
	try  int8
	node int8
	step Step
}

func (l label) String() string {
	steps := [...]string{"acquire", "raise", "extend", "restore", "mint", "release", "inspect", ""}
	s := fmt.Sprintf("%c ", 'a'+l.try)
	if l.try < 0 {
		s = ""
	}
	if l.node >= 0 {
		s += fmt.Sprintf("n%d %s ", l.node+1, steps[l.step])
	}
	return s + l.what
}

// An edge leads to another world. calm says that no fault is needed, so the step happens sooner or later.
type edge struct {
	label
	calm bool
	to   *world
}

type found struct {
	states, ends int
	broken       string
	trace        []string
	took         time.Duration
}

// explore returns what breaks first, or the size of the world.
func (x *explorer) explore(roots ...*world) (f found) {
	start := time.Now()
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	x.seed = maphash.MakeSeed()
	type origin struct {
		from int32
		label
	}
	index := map[uint64]int32{}
	var level, next []*world
	var origins []origin
	var from, to []int32 // by edge
	trace := func(n int32) (all []string) {
		for ; n >= 0 && origins[n].from != -1; n = origins[n].from {
			all = append(all, origins[n].String())
		}
		slices.Reverse(all)
		return all
	}
	var room []byte
	add := func(w *world, o origin) (n int32, fresh bool) {
		room = w.id(room[:0])
		h := maphash.Bytes(x.seed, room)
		n, ok := index[h]
		if !ok {
			n = int32(len(origins))
			index[h] = n
			origins = append(origins, o)
			next = append(next, w)
		}
		return n, !ok
	}
	for _, w := range roots {
		add(w, origin{from: -1})
	}
	numbers := int32(0)
	for len(next) > 0 {
		level, next = next, nil
		for at, w := range level {
			me := numbers
			numbers++
			level[at] = nil
			calm := false
			for _, e := range x.steps(w) {
				calm = calm || e.calm
				n, fresh := add(e.to, origin{me, e.label})
				from, to = append(from, me), append(to, n)
				if !fresh {
					continue
				}
				if f.broken = e.to.check(); f.broken != "" {
					f.states, f.trace, f.took = len(origins), trace(n), time.Since(start)
					return f
				}
			}
			if !calm {
				f.ends++
				if f.broken = w.unfinished(); f.broken != "" {
					f.states, f.trace, f.took = len(origins), trace(me), time.Since(start)
					return f
				}
			}
		}
		if x.limit > 0 && len(origins) > x.limit {
			f.broken = "too many states"
			break
		}
	}
	f.states = len(origins)
	if f.broken == "" && cyclic(len(origins), from, to) {
		f.broken = "a way without an end"
	}
	f.took = time.Since(start)
	return f
}

// cyclic reports whether some way never ends. Without one, each way ends where nothing more happens.
func cyclic(n int, from, to []int32) bool {
	into := make([]int32, n)
	first := make([]int32, n+1)
	for i := range from {
		into[to[i]]++
		first[from[i]+1]++
	}
	for i := range n {
		first[i+1] += first[i]
	}
	var todo []int32
	for i, c := range into {
		if c == 0 {
			todo = append(todo, int32(i))
		}
	}
	done := 0
	for len(todo) > 0 {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		done++
		for _, t := range to[first[s]:first[s+1]] {
			if into[t]--; into[t] == 0 {
				todo = append(todo, t)
			}
		}
	}
	return done < n
}

// steps returns all that can happen next.
func (x *explorer) steps(w *world) (all []edge) {
	add := func(i, node int, step Step, what string, calm bool, f func(c *world, t *try)) {
		c := w.clone()
		var t *try
		if i >= 0 {
			t = c.own(i)
		}
		f(c, t)
		for j, t := range c.tries {
			switch {
			case j == i:
				c.tidy(j)
			case t != nil && node >= 0 && t.leftovers():
				c.own(j)
				c.tidy(j)
			}
		}
		all = append(all, edge{label{what, int8(i), int8(node), step}, calm, c})
	}
	spend := func(k kind, i, node int, step Step, what string, f func(c *world, t *try)) {
		if w.left[k] > 0 {
			add(i, node, step, what, false, func(c *world, t *try) { c.left[k]--; c.faulty = true; f(c, t) })
		}
	}
	for i, t := range w.tries {
		if t == nil {
			continue
		}
		x.client(w, i, t, add, spend)
		for k, m := range t.msgs {
			if k > 0 && slices.Contains(t.msgs[:k], m) {
				continue
			}
			x.command(w, i, k, m, add, spend)
		}
		mayExpire := t.dead || t.lapsed || t.phase == over && t.unheard != 0
		for n := range w.nodes {
			if mayExpire && int(w.nodes[n].holder) == i+1 && !t.releases(n) { // a release that is carried out is the same step
				add(i, n, Finish, "key expires", false, func(c *world, _ *try) { c.nodes[n].holder = 0 })
			}
		}
	}
	for n := range w.nodes {
		x.restart(w, n, add, spend)
		if w.nodes[n].holder != 0 {
			spend(vanishes, -1, n, Finish, "key vanishes", func(c *world, _ *try) { c.nodes[n].holder = 0 })
		}
	}
	return all
}

type (
	adder   func(i, node int, step Step, what string, calm bool, f func(c *world, t *try))
	spender func(k kind, i, node int, step Step, what string, f func(c *world, t *try))
)

// client has the steps that a client begins.
func (x *explorer) client(w *world, i int, t *try, add adder, spend spender) {
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
		add(i, -1, 0, "acquires", true, acquire(0))
		for n := range w.nodes {
			spend(silence, i, n, 0, "was silent, and it acquires", acquire(1<<n))
		}
		return
	case holding:
		add(i, -1, 0, "releases", true, func(c *world, t *try) {
			t.phase, t.must = leaving, 0
			x.begin(c, i, Release, 0)
		})
		spend(renewals, i, -1, 0, "renews", func(c *world, t *try) {
			c.faulty = w.faulty
			x.begin(c, i, Restore, 0)
			for k := range t.msgs {
				if t.msgs[k].step == Restore {
					t.msgs[k].fence = t.fence
				}
			}
		})
		spend(adoptions, i, -1, 0, "is adopted", func(c *world, _ *try) { c.faulty = w.faulty; x.begin(c, i, Mint, 0) })
	}
	if t.phase == asking && t.token.release == nil {
		spend(gone, i, -1, 0, "releases early", func(c *world, t *try) {
			t.phase, t.must = leaving, 0
			x.begin(c, i, Release, 0)
		})
	}
	if x.restores && t.phase == leaving {
		spend(renewals, i, -1, 0, "renews too late", func(c *world, t *try) {
			was := t.token.release
			t.token.release = nil
			x.begin(c, i, Restore, 0)
			t.token.release = was
		})
	}
	if (t.phase == asking || t.phase == holding) && !t.lapsed {
		spend(lapses, i, -1, 0, "has a lease that ends", func(c *world, t *try) {
			t.lapsed, t.must = true, 0
			was := t.phase
			for j := range t.begun {
				if o := &t.ops[j]; t.live[j] && t.phase == was {
					if o.step == Acquire && o.Result() == Undecided {
						t.phase = leaving
					}
					x.run(c, i, func(_ *try, out []Effect) []Effect { return o.Expire(out) })
				}
			}
			if was == holding {
				t.phase = leaving
				x.begin(c, i, Release, 0)
			}
		})
	}
	if t.phase < over {
		spend(crashes, i, -1, 0, "crashes", func(_ *world, t *try) { t.dead, t.must = true, 0; t.live = [mostOps]bool{} })
	}
}

// command has the steps of a command under way, or of its answer.
func (x *explorer) command(w *world, i, k int, m msg, add adder, spend spender) {
	n := int(m.node)
	up := !w.nodes[n].away
	switch m.state {
	case sent, orphan:
		if up {
			add(i, n, m.step, "is carried out", true, func(c *world, t *try) {
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
		add(i, n, m.step, "is answered", true, func(c *world, t *try) {
			if m.open {
				t.msgs = append(t.msgs, msg{op: m.op, node: m.node, step: m.step, fence: m.fence, state: settling})
			}
			x.give(c, i, k, Answer{Outcome: m.got, Vote: m.vote})
		})
	case settling:
		add(i, n, m.step, "has no earlier send left", true, func(c *world, t *try) {
			t.msgs = slices.Delete(t.msgs, k, k+1)
			t.tooLate(m)
			if !x.unsettled {
				x.run(c, i, func(t *try, out []Effect) []Effect { return t.token.Settled(n, out) })
			}
		})
	}
	if m.state == orphan && (w.tries[i].dead || !up) {
		add(i, n, m.step, "is never carried out", true, func(_ *world, t *try) { t.msgs = slices.Delete(t.msgs, k, k+1) })
	}
	if m.state > answered {
		return
	}
	if m.state == sent && !up {
		add(i, n, m.step, "times out at a node that is away", true, func(c *world, _ *try) { x.timeOut(c, i, k) })
	}
	spend(lostReply, i, n, m.step, "times out", func(c *world, _ *try) { x.timeOut(c, i, k) })
	if m.state == answered {
		return
	}
	spend(lostCommand, i, n, m.step, "is lost", func(c *world, t *try) {
		if m.step == Release {
			t.unheard |= 1 << n
		}
		if m.open {
			t.tooLate(m)
			k := slices.IndexFunc(t.msgs, func(o msg) bool { return o == m })
			x.give(c, i, k, Answer{Outcome: Failed})
			return
		}
		x.give(c, i, k, Answer{Outcome: Failed})
	})
	spend(twice, i, n, m.step, "is sent twice", func(_ *world, t *try) {
		t.msgs[k].open = m.step.Creates()
		t.msgs = append(t.msgs, msg{op: m.op, node: m.node, step: m.step, fence: m.fence, state: orphan})
	})
	if m.step.Creates() {
		spend(failsEarly, i, n, m.step, "fails early", func(c *world, t *try) {
			t.msgs = append(t.msgs,
				msg{op: m.op, node: m.node, step: m.step, fence: m.fence, state: orphan},
				msg{op: m.op, node: m.node, step: m.step, fence: m.fence, state: settling})
			x.give(c, i, k, Answer{Outcome: Failed})
		})
	}
}

// restart has the restarts of a node. Its clock keeps its counter from falling.
func (x *explorer) restart(w *world, n int, add adder, spend spender) {
	floor := func(w *world) (c uint64) {
		for i := range w.nodes {
			c = max(c, w.nodes[i].counter)
		}
		return c
	}
	if !w.nodes[n].away {
		spend(wipes, -1, n, Finish, "restarts empty", func(c *world, _ *try) {
			c.wiped = true
			c.nodes[n] = node{counter: floor(w), away: x.stays}
			for i, t := range c.tries {
				if t != nil && !t.dead && (t.phase == asking || t.phase == holding) && x.stays {
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
	add(-1, n, Finish, "comes back", true, func(c *world, _ *try) { c.nodes[n] = node{counter: floor(w)} })
}

// faults returns bounds for newWorld.
func faults(pairs ...kind) (left [kinds]int8) {
	for _, k := range pairs {
		left[k]++
	}
	return left
}

var wide = flag.Bool("quorum.wide", false, "explore larger worlds too: minutes, and gigabytes")

// skip skips a large world.
func skip(t *testing.T, large bool) {
	if testing.Short() || large && !*wide {
		t.Skip("without -short, and the larger ones with -quorum.wide")
	}
}

func TestNoHistoryBreaksAnInvariant(t *testing.T) {
	seen := map[string]int{}
	for i, tt := range []struct {
		name  string
		large bool
		stays bool
		roots []*world
	}{
		{"two clients", false, false, []*world{newWorld(3, 2, faults()), newWorld(3, 2, faults(), 0, 1, 2)}},
		{"a reply and a command lost", false, false, []*world{newWorld(3, 2, faults(lostReply, lostCommand))}},
		{"a command sent twice", false, false, []*world{newWorld(3, 2, faults(twice)), newWorld(3, 1, faults(twice, twice, lostReply))}},
		{"a failure before the timeout", false, false, []*world{newWorld(3, 2, faults(failsEarly)), newWorld(3, 1, faults(failsEarly, failsEarly, renewals))}},
		{"renewals", false, false, []*world{newWorld(3, 2, faults(renewals)), newWorld(3, 1, faults(renewals, lostReply, lostReply)), newWorld(3, 1, faults(renewals, renewals, lostCommand))}},
		{"a crash", false, false, []*world{newWorld(3, 2, faults(crashes))}},
		{"a lease that ends", false, false, []*world{newWorld(3, 2, faults(lapses)), newWorld(3, 1, faults(lapses, renewals, lostReply))}},
		{"a release during the acquire", false, false, []*world{newWorld(3, 2, faults(gone)), newWorld(3, 1, faults(gone, lostReply, twice))}},
		{"a node that was silent", false, false, []*world{newWorld(3, 2, faults(silence))}},
		{"a node that restarts empty and stays away", false, true, []*world{newWorld(3, 2, faults(wipes))}},
		{"an adoption", false, false, []*world{newWorld(3, 1, faults(adoptions, lostReply), 0, 1, 2)}},
		{"keys that vanish", false, false, []*world{loose(2, faults(vanishes))}},
		{"five nodes", false, false, []*world{newWorld(5, 1, faults(lostReply)), newWorld(5, 1, faults(renewals))}},
		{"three clients", true, false, []*world{newWorld(3, 3, faults())}},
		{"five nodes, two clients", true, false, []*world{newWorld(5, 2, faults())}},
		{"two replies lost, two clients", true, false, []*world{newWorld(3, 2, faults(lostReply, lostReply), 0, 1, 2)}},
		{"a renewal, two clients", true, false, []*world{newWorld(3, 2, faults(renewals), 0, 1, 2), newWorld(3, 2, faults(renewals, lostReply))}},
		{"a failure before the timeout and a lost reply", true, false, []*world{newWorld(3, 2, faults(failsEarly, lostReply))}},
		{"a crash and a lost reply", true, false, []*world{newWorld(3, 2, faults(crashes, lostReply))}},
		{"a restart and a renewal", true, true, []*world{newWorld(3, 2, faults(wipes, renewals))}},
		{"an adoption, two clients", true, false, []*world{newWorld(3, 2, faults(adoptions))}},
		{"a command sent twice, unequal counters", true, false, []*world{newWorld(3, 2, faults(twice), 0, 1, 2)}},
		{"a lease that ends, unequal counters", true, false, []*world{newWorld(3, 2, faults(lapses), 0, 1, 2)}},
		{"keys that vanish, a command sent twice", true, false, []*world{loose(2, faults(vanishes, twice))}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			skip(t, tt.large || redistest.RaceDetector() && i > 0)
			x := explorer{stays: tt.stays, seen: seen, limit: 5_000_000}
			f := x.explore(tt.roots...)
			if f.broken != "" {
				t.Errorf("%s:\n%s", f.broken, strings.Join(f.trace, "\n"))
			}
			t.Logf("%d states, %d ends, %v", f.states, f.ends, f.took.Round(time.Millisecond))
		})
	}
	t.Log(seen)
	if !testing.Short() && !redistest.RaceDetector() {
		for _, what := range []string{
			"acquire ok", "acquire ok by a raise", "acquire refused", "acquire noquorum", "acquire lost",
			"restore ok", "restore lost", "restore noquorum", "restore ended", "mint ok", "mint ok by a raise", "mint noquorum",
			"mint ended", "release ok", "release lost", "release noquorum",
		} {
			if seen[what] == 0 {
				t.Errorf("no history had the result %q", what)
			}
		}
	}
}
