package line

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/testing/explore"
)

// add is something that can happen to a process. f carries it out. A line that does both may poll or
// queue then.
func (g *game) add(name string, i int, kind explore.Kind, f func(w *scene)) {
	g.step(name, i, kind, f)
	if g.both[i] {
		g.step(name+", queueing", i, kind, func(w *scene) {
			g.queues = true
			f(w)
			g.queues = false
		})
	}
}

func (g *game) step(name string, i int, kind explore.Kind, f func(w *scene)) {
	g.Step(g.from, kind, func(w *scene) {
		if g.Log != nil {
			fmt.Fprintf(g.Log, "%c: %s\n", 'A'+i, name)
		}
		f(w)
		g.check(w)
		g.tidy(w)
	})
}

func (g *game) calm(name string, i int, f func(w *scene)) { g.add(name, i, explore.Calm, f) }

func (g *game) command(name string, i int, f func(w *scene)) { g.add(name, i, explore.Command, f) }

// spend is a fault that must still be allowed.
func (g *game) spend(kind int, name string, i int, f func(w *scene)) {
	if g.from.faults[kind] > 0 && g.from.left > 0 {
		g.add(name, i, explore.Fault, func(w *scene) {
			w.faults[kind]--
			w.left--
			f(w)
		})
	}
}

// steps has all that can happen next.
func (g *game) steps(from *scene) {
	g.from = from
	for i := range g.procs {
		p := &from.procs[i]
		if p.dead == 0 && p.frozen == 0 {
			for c := range g.callers {
				g.caller(i, c)
			}
			g.line(i)
			g.channel(i)
			g.spend(crash, "crash", i, func(w *scene) { w.procs[i].dead = 1 })
			g.spend(freeze, "freeze", i, func(w *scene) { w.procs[i].frozen = 1 })
		}
		if p.frozen == 1 {
			g.calm("resume", i, func(w *scene) { g.resume(w, i) })
		}
		g.commands(i)
	}
	g.server()
}

// caller adds what a caller can do.
func (g *game) caller(i, c int) {
	switch p := &g.from.procs[i]; p.callers[c].state {
	case done:
		if g.again {
			g.calm("come again", i, func(w *scene) { w.procs[i].callers[c] = caller{}; g.join(w, i, c) })
		}
	case absent:
		if c == 0 || p.callers[c-1].state != absent {
			g.calm("join", i, func(w *scene) { g.join(w, i, c) })
			if t := p.callers[0].token; g.together && c > 0 && p.callers[0].state == holds && g.shares(i) {
				g.calm("join a reader", i, func(w *scene) { w.procs[i].callers[c] = caller{state: holds, token: t} })
			}
		}
	case waits:
		g.spend(leaves, "leave", i, func(w *scene) {
			w.procs[i].callers[c].end()
			g.run(w, i, func(m *Machine[int, uint64], _ Facts, out []Effect[int, uint64]) []Effect[int, uint64] {
				out, _ = m.Leave(&g.places[c], out)
				return out
			})
		})
	case holds:
		g.calm("unlock", i, func(w *scene) { g.unlock(w, i, c, true, true) })
		if !g.shares(i) && p.line.order[0] != 0 {
			g.calm("unlock, apart", i, func(w *scene) { g.unlock(w, i, c, false, false) })
		}
		g.spend(loss, "lost", i, func(w *scene) { g.lost(w, i, c) })
	}
}

func (g *game) join(w *scene, i, c int) {
	w.newest++
	w.procs[i].callers[c] = caller{state: waits, since: w.newest}
	g.run(w, i, func(m *Machine[int, uint64], f Facts, out []Effect[int, uint64]) []Effect[int, uint64] {
		g.places[c].Since = clock.Mono(w.newest)
		return m.Join(f, &g.places[c], out)
	})
}

func (g *game) unlock(w *scene, i, c int, passable, carries bool) {
	t := w.procs[i].callers[c].token
	w.procs[i].callers[c].end()
	if w.procs[i].uses(t) {
		return
	}
	g.run(w, i, func(m *Machine[int, uint64], f Facts, out []Effect[int, uint64]) []Effect[int, uint64] {
		out, passed := m.Unlock(f, uint64(t), uint64(t), passable, carries, out)
		if given := slices.ContainsFunc(out, func(e Effect[int, uint64]) bool { return e.Kind == Give }); passed == given {
			g.violated("Unlock reports what is not so")
		}
		return out
	})
}

// lost ends a lease. Its holder notices, and releases the key.
func (g *game) lost(w *scene, i, c int) {
	t := w.procs[i].callers[c].token
	w.procs[i].callers[c].end()
	g.run(w, i, func(m *Machine[int, uint64], f Facts, out []Effect[int, uint64]) []Effect[int, uint64] {
		return m.Lost(f, uint64(t), out)
	})
	if !w.procs[i].uses(t) {
		g.give(&w.procs[i], release{token: t})
	}
}

// resume wakes a process. The timers of its leases are the first to fire.
func (g *game) resume(w *scene, i int) {
	p := &w.procs[i]
	p.frozen = 0
	for c := range p.callers {
		if p.lapsed&(1<<c) != 0 {
			p.lapsed &^= 1 << c
			g.lost(w, i, c)
		}
	}
}

// line adds what the line of a process can hear.
func (g *game) line(i int) {
	p := &g.from.procs[i]
	if p.look == 1 && !g.blind {
		g.calm("look", i, func(w *scene) {
			w.procs[i].look = 0
			g.run(w, i, (*Machine[int, uint64]).Due)
		})
	}
	switch p.ask.state {
	case granted:
		g.calm("granted", i, func(w *scene) { g.outcome(w, i, Outcome{}) })
		g.spend(slow, "granted too late", i, func(w *scene) { w.procs[i].ask.late = 1; g.outcome(w, i, Outcome{}) })
	case refused:
		g.calm("refused", i, func(w *scene) { g.outcome(w, i, Outcome{Answer: Refused, Clean: true}) })
	case sent:
		g.spend(replyLost, "not sent", i, func(w *scene) { g.outcome(w, i, Outcome{Answer: Failed, Clean: true}) })
	case carried:
		if slices.ContainsFunc(p.gives[:], func(r release) bool { return r.next == p.ask.token && r.lost == 1 }) {
			g.calm("unknown", i, func(w *scene) { g.outcome(w, i, Outcome{Answer: Failed}) })
		}
	}
	if p.ask.state != none { // the server does not run it later
		g.spend(replyLost, "unknown", i, func(w *scene) { g.outcome(w, i, Outcome{Answer: Failed}) })
		g.spend(replyLost, "opens", i, func(w *scene) { g.outcome(w, i, Outcome{Answer: Failed, Opens: true}) })
	}
	for j, m := range p.messages {
		if m.token == 0 || j > 0 && m == p.messages[j-1] {
			continue
		}
		g.calm("message", i, func(w *scene) { g.message(w, i, j, m.late == 1) })
		g.spend(twice, "message, and it comes again", i, func(w *scene) {
			g.message(w, i, j, m.late == 1)
			w.procs[i].messages[j] = m
		})
		g.spend(messageLost, "message lost", i, func(w *scene) { w.procs[i].messages[j] = message{} })
		if m.late == 0 {
			g.spend(slow, "message too late", i, func(w *scene) { g.message(w, i, j, true) })
		}
	}
}

// outcome hands the outcome of the acquire under way to the line. That of a granted one is known
// from its state.
func (g *game) outcome(w *scene, i int, o Outcome) {
	p := &w.procs[i]
	a, s, got := p.ask, p.line, p.got
	isGranted := o.Answer == None && a.late == 0
	if o.Answer == None {
		o.Answer = Late
	}
	o.Ended, o.NewEntry = got == 2, a.fresh == 1
	used := got == 1 && s.order[0] != 0 && !g.config.Confirms
	p.ask = acquire{}
	g.run(w, i, func(m *Machine[int, uint64], f Facts, out []Effect[int, uint64]) []Effect[int, uint64] {
		if isGranted {
			return m.Granted(f, a.fresh == 1, out)
		}
		if a.state == carried {
			out = m.Changed(f, out)
		}
		return m.NotGranted(f, o, out)
	})
	switch {
	case p.channel == away && a.fresh == 1 && got == 0 && (isGranted || o.Answer == Refused):
		g.violated("a subscription stays on a server that is no longer the primary")
	case used && !g.shares(i) && State(p.line.state) != Holding:
		g.violated("a message is not used")
	case o.Answer == Refused && a.entry != 0 && s.hasten == 0 && got == 0 && !g.config.Quorum && p.ask.state != none:
		g.violated("a refusal is followed by another acquire")
	}
}

func (g *game) message(w *scene, i, j int, late bool) {
	p := &w.procs[i]
	t := p.messages[j].token
	p.messages[j] = message{}
	if t == p.line.token && State(p.line.state) == Asking && p.got != 1 {
		p.got = 1 + bit(late)
	}
	g.run(w, i, func(m *Machine[int, uint64], f Facts, out []Effect[int, uint64]) []Effect[int, uint64] {
		return m.Message(f, uint64(t), late, out)
	})
}

// channel adds what happens to the channel of a process.
func (g *game) channel(i int) {
	changed := func(w *scene) {
		if w.procs[i].line.subscribed == 1 {
			g.run(w, i, (*Machine[int, uint64]).Changed)
		}
	}
	switch p := &g.from.procs[i]; p.channel {
	case open:
		g.spend(deaf, "channel breaks", i, func(w *scene) {
			w.procs[i].channel, w.procs[i].messages = opens, [4]message{}
			changed(w)
		})
		g.spend(deaf, "the primary moves", i, func(w *scene) { w.procs[i].channel = away })
	case opens:
		if p.line.subscribed == 1 {
			g.calm("channel opens", i, func(w *scene) { w.procs[i].channel = open; changed(w) })
			g.spend(deaf, "channel is refused", i, func(w *scene) { w.procs[i].channel = shut; changed(w) })
		}
	}
}

// commands adds what Redis can do with the commands of a process.
func (g *game) commands(i int) {
	p := &g.from.procs[i]
	switch p.ask.state {
	case sent:
		g.command("acquire runs", i, func(w *scene) { g.acquire(w, i) })
	case granted, refused:
		g.spend(twice, "acquire runs again", i, func(w *scene) { g.acquire(w, i) })
	}
	for j, r := range p.gives {
		if r.token == 0 || r.lost == 1 || j > 0 && r == p.gives[j-1] {
			continue
		}
		if r.behind == 0 || p.ask.state != sent {
			g.command("release runs", i, func(w *scene) { w.procs[i].gives[j] = release{}; g.release(w, i, r) })
			g.spend(twice, "release runs, and will again", i, func(w *scene) { g.release(w, i, r) })
		}
		g.spend(releaseLost, "release lost", i, func(w *scene) { w.procs[i].gives[j].lost = 1 })
	}
}

// server adds what happens in Redis alone, and the client of another library, which comes once.
func (g *game) server() {
	for _, t := range g.from.keys {
		if t == 0 || t == foreignToken {
			continue
		}
		p := &g.from.procs[t>>4]
		trusted := false
		for _, c := range p.callers {
			trusted = trusted || c.state == holds && c.token == t&15
		}
		expires := func(w *scene) { w.expire(t) }
		switch {
		case g.from.orphan(t):
			g.calm("expires", int(t>>4), expires)
		case !trusted || p.frozen == 1:
			g.spend(expiry, "expires", int(t>>4), expires)
		}
	}
	if g.from.queue[0].token != 0 {
		g.spend(queueLost, "queue is lost", 0, func(w *scene) { w.queue = [6]queued{} })
	}
	if head := g.from.queue[0].token; g.limit > 1 && head != 0 && !g.fits(g.from, int(head>>4)) {
		g.spend(passed, "the first of the queue has kept others back for too long", int(head>>4), func(w *scene) { w.dequeue(head) })
	}
	switch {
	case g.from.foreign == 0 && slices.Contains(g.from.keys[:g.limit], 0):
		g.spend(foreigner, "foreign client acquires", 0, func(w *scene) { w.set(0, foreignToken); w.foreign = 1 })
	case g.from.foreign == 1:
		g.calm("foreign client deletes", 0, func(w *scene) { w.set(foreignToken, 0); w.foreign = 2 })
	}
}

// world returns the walk through the scenes of a game. A copy of a game must not be used with it.
func (g *game) world() *explore.Walk[scene] {
	g.Walk = explore.Walk[scene]{
		Steps: g.steps, Key: (*scene).key, Ended: g.clean, Ends: g.blind,
		Wrong: func(*scene) string {
			wrong := g.wrong
			g.wrong = ""
			return wrong
		},
	}
	if g.channels[0] == g.channels[1] && g.hurried[0] == g.hurried[1] && g.both == [3]bool{} && g.limits == [3]int{} && g.writes == [3]bool{} { // of three processes, all are alike
		g.Alike = g.procs
	}
	return &g.Walk
}

// start returns the first scene, with up to each faults of a kind and total in all.
func (g *game) start(each, total uint8) (w scene) {
	w.left = total
	for kind := range w.faults {
		w.faults[kind] = each
	}
	w.faults[foreigner] = min(each, 1)
	for i := range g.procs {
		w.procs[i].channel = g.channels[i]
	}
	return w
}

var lockConfig = Config{
	Passes: 63, TTL: 10 * time.Second, Shortest: 8 * time.Millisecond, Longest: 128 * time.Millisecond,
}

// lock returns two processes with two callers each.
func lock(change func(g *game)) game {
	g := game{procs: 2, callers: 2, limit: 1, config: lockConfig, channels: [3]channel{open, open, open}}
	change(&g)
	return g
}

// games are the worlds to explore. Each is walked with at most one fault of each kind, two with -wide,
// and with as many in all as total has for the size. A client of another library counts as a fault. Two
// processes with two callers each and two faults make more than two million scenes, where those that
// differ only in the order of the processes count once.
//
// The games have no clock: looks come at any time, a lease that nobody trusts may end at any time,
// and a reply or a message may be too late at any time. A turn may pass the lock on, or not.
// Commands of one process run in any order, except that a release is behind the acquire that was
// sent just before. The release of an Unlock may carry an acquire, and may run at any later time,
// since it is repeated. A message may come at any later time. Limits of a turn, pauses and the
// deadlines of callers are subjects of the scenarios.
var games = []struct {
	name  string
	total [3]uint8 // by explore.Size
	game  game
}{
	{"two processes, two callers each", [3]uint8{1, 1, 3}, lock(func(*game) {})},
	{"three processes", [3]uint8{1, 2, 3}, lock(func(g *game) { g.procs, g.callers = 3, 1 })},
	{"channels open late", [3]uint8{0, 0, 1}, lock(func(g *game) { g.channels = [3]channel{opens, opens} })},
	{"one without messages", [3]uint8{0, 1, 2}, lock(func(g *game) { g.channels[1] = shut })},
	{"replicas confirm", [3]uint8{0, 1, 2}, lock(func(g *game) { g.config.Confirms = true })},
	{"one in a hurry", [3]uint8{0, 1, 2}, lock(func(g *game) { g.hurried[1] = true })},
	{"one polls and queues", [3]uint8{0, 0, 2}, lock(func(g *game) { g.both[1], g.channels[1] = true, opens })},
	{"two poll and queue", [3]uint8{0, 0, 2}, lock(func(g *game) { g.procs, g.callers, g.both, g.channels[0] = 3, 1, [3]bool{true, true}, opens })},
	{"polling", [3]uint8{0, 1, 2}, lock(func(g *game) { g.polls = true })},
	{"a quorum", [3]uint8{0, 1, 2}, lock(func(g *game) { g.polls, g.config.Quorum = true, true })},
	{"semaphore", [3]uint8{0, 1, 2}, lock(func(g *game) { g.limit = 2 })},
	{"semaphore of three processes", [3]uint8{0, 1, 2}, lock(func(g *game) { g.procs, g.callers, g.limit = 3, 1, 2 })},
	{"callers with other limits", [3]uint8{0, 1, 2}, lock(func(g *game) { g.procs, g.callers, g.limit, g.limits = 3, 1, 2, [3]int{1} })},
	{"readers and a writer", [3]uint8{0, 1, 2}, lock(func(g *game) { g.limit, g.together, g.writes = 2, true, [3]bool{true} })},
	{"two readers and a writer", [3]uint8{0, 1, 2}, lock(func(g *game) { g.procs, g.callers, g.limit, g.together, g.writes = 3, 1, 2, true, [3]bool{true} })},
	{"two writers and a reader", [3]uint8{0, 1, 2}, lock(func(g *game) { g.procs, g.callers, g.limit, g.together, g.writes = 3, 1, 2, true, [3]bool{true, true} })},
}

func TestNothingGoesWrongInAnyShortHistory(t *testing.T) {
	for _, c := range games {
		t.Run(c.name, func(t *testing.T) {
			explore.Parallel(t)
			size, each := explore.Chosen(), uint8(1)
			if size == explore.Wide {
				each = 2
			}
			g := c.game
			g.world().Test(t, g.start(each, c.total[size]))
		})
	}
}

// Without faults, messages are enough: no look is needed, and the number of commands is bounded.
// Each turn needs two, and a line that could not queue at first one more.
func TestMessagesAreEnoughWithoutFaults(t *testing.T) {
	commands := map[string]int{
		"two processes, two callers each": 8, "three processes": 6, "channels open late": 10, "semaphore": 8,
		"readers and a writer": 8, "two readers and a writer": 6, "two writers and a reader": 6,
	}
	for _, c := range games {
		want, ok := commands[c.name]
		if !ok {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			g := c.game
			g.blind = true
			if got := g.world().Test(t, g.start(0, 0)); got != want {
				t.Errorf("up to %d commands run, not %d", got, want)
			}
		})
	}
}
