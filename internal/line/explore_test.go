package line

import (
	"bytes"
	"flag"
	"fmt"
	"hash/maphash"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"
)

var wide = flag.Bool("line.wide", false, "explore two faults of each kind, and more of them in all: minutes, and gigabytes")

// An edge is one way on from a scene.
type edge struct {
	fault   bool
	command bool // a command runs
	to      scene
}

// A walker finds the ways on from a scene.
type walker struct {
	*game
	from  *scene
	edges []edge
	only  int // take this step only, or all
}

const all = -1

func (k *walker) add(name string, i int, fault bool, f func(w *scene)) {
	n := len(k.edges)
	k.edges = append(k.edges, edge{fault, strings.HasSuffix(name, "runs"), *k.from})
	if k.only != all && k.only != n {
		return
	}
	if k.log != nil {
		fmt.Fprintf(k.log, "%c: %s\n", 'A'+i, name)
	}
	f(&k.edges[n].to)
}

// spend is add for a fault that must still be allowed.
func (k *walker) spend(kind int, name string, i int, f func(w *scene)) {
	if k.from.faults[kind] > 0 && k.from.left > 0 {
		k.add(name, i, true, func(w *scene) {
			w.faults[kind]--
			w.left--
			f(w)
		})
	}
}

// steps returns all ways on.
func (k *walker) steps(from *scene) []edge {
	k.from, k.edges = from, k.edges[:0]
	for i := range k.procs {
		p := &from.procs[i]
		if p.dead == 0 && p.frozen == 0 {
			for c := range k.callers {
				k.caller(i, c)
			}
			k.line(i)
			k.channel(i)
			k.spend(crash, "crash", i, func(w *scene) { w.procs[i].dead = 1 })
			k.spend(freeze, "freeze", i, func(w *scene) { w.procs[i].frozen = 1 })
		}
		if p.frozen == 1 {
			k.add("resume", i, false, func(w *scene) { k.resume(w, i) })
		}
		k.commands(i)
	}
	k.server()
	return k.edges
}

// caller adds what a caller can do.
func (k *walker) caller(i, c int) {
	switch p := &k.from.procs[i]; p.callers[c].state {
	case done:
		if k.again {
			k.add("come again", i, false, func(w *scene) { w.procs[i].callers[c] = caller{}; k.join(w, i, c) })
		}
	case absent:
		if c == 0 || p.callers[c-1].state != absent {
			k.add("join", i, false, func(w *scene) { k.join(w, i, c) })
		}
	case waits:
		k.spend(leaves, "leave", i, func(w *scene) {
			w.procs[i].callers[c].end()
			k.run(w, i, "leave", func(m *Machine[int], _ Facts, out []Effect[int]) []Effect[int] {
				out, _ = m.Leave(&k.places[c], out)
				return out
			})
		})
	case holds:
		k.add("unlock", i, false, func(w *scene) { k.unlock(w, i, c, true) })
		if k.limit == 1 && p.line.order[0] != 0 {
			k.add("unlock, not passable", i, false, func(w *scene) { k.unlock(w, i, c, false) })
		}
		k.spend(loss, "lost", i, func(w *scene) { k.lost(w, i, c) })
	}
}

func (k *walker) join(w *scene, i, c int) {
	w.newest++
	w.procs[i].callers[c] = caller{state: waits, since: w.newest}
	k.run(w, i, "join", func(m *Machine[int], f Facts, out []Effect[int]) []Effect[int] {
		k.places[c].Since = time.Duration(w.newest)
		return m.Join(f, &k.places[c], out)
	})
}

func (k *walker) unlock(w *scene, i, c int, passable bool) {
	t := w.procs[i].callers[c].token
	w.procs[i].callers[c].end()
	k.run(w, i, "unlock", func(m *Machine[int], f Facts, out []Effect[int]) []Effect[int] {
		return m.Unlock(f, uint64(t), passable, out)
	})
}

// lost ends a lease. Its holder notices, and releases the key.
func (k *walker) lost(w *scene, i, c int) {
	t := w.procs[i].callers[c].token
	w.procs[i].callers[c].end()
	k.run(w, i, "lost", func(m *Machine[int], f Facts, out []Effect[int]) []Effect[int] { return m.Lost(f, uint64(t), out) })
	k.give(&w.procs[i], release{token: t})
}

// resume wakes a process. The timers of its leases are the first to fire.
func (k *walker) resume(w *scene, i int) {
	p := &w.procs[i]
	p.frozen = 0
	for c := range p.callers {
		if p.lapsed&(1<<c) != 0 {
			p.lapsed &^= 1 << c
			k.lost(w, i, c)
		}
	}
}

// line adds what the line of a process can hear.
func (k *walker) line(i int) {
	p := &k.from.procs[i]
	if p.look == 1 && !k.blind {
		k.add("look", i, false, func(w *scene) {
			w.procs[i].look = 0
			k.run(w, i, "due", func(m *Machine[int], f Facts, out []Effect[int]) []Effect[int] { return m.Due(f, out) })
		})
	}
	switch p.ask.state {
	case granted:
		k.add("granted", i, false, func(w *scene) { k.outcome(w, i, Outcome{}) })
		k.spend(slow, "granted too late", i, func(w *scene) { w.procs[i].ask.late = 1; k.outcome(w, i, Outcome{}) })
	case refused:
		k.add("refused", i, false, func(w *scene) { k.outcome(w, i, Outcome{Answer: Refused, Clean: true}) })
	case sent:
		k.spend(replyLost, "not sent", i, func(w *scene) { k.outcome(w, i, Outcome{Answer: Failed, Clean: true}) })
	}
	if p.ask.state != none { // the server does not run it later
		k.spend(replyLost, "unknown", i, func(w *scene) { k.outcome(w, i, Outcome{Answer: Failed}) })
	}
	for j, m := range p.messages {
		if m.token == 0 || j > 0 && m == p.messages[j-1] {
			continue
		}
		k.add("message", i, false, func(w *scene) { k.message(w, i, j, m.late == 1) })
		k.spend(twice, "message, and it comes again", i, func(w *scene) {
			k.message(w, i, j, m.late == 1)
			w.procs[i].messages[j] = m
		})
		k.spend(messageLost, "message lost", i, func(w *scene) { w.procs[i].messages[j] = message{} })
		if m.late == 0 {
			k.spend(slow, "message too late", i, func(w *scene) { k.message(w, i, j, true) })
		}
	}
}

// outcome hands the outcome of the acquire under way to the line. That of a granted one is known from its state.
func (k *walker) outcome(w *scene, i int, o Outcome) {
	p := &w.procs[i]
	a, s, got := p.ask, p.line, p.got
	isGranted := o.Answer == None && (a.late == 0 || k.mistake != nil && k.mistake.trusts)
	if o.Answer == None {
		o.Answer = Late
	}
	o.Ended = got == 2
	used := got == 1 && s.order[0] != 0 && !k.config.Confirms
	p.ask = acquire{}
	k.run(w, i, "outcome", func(m *Machine[int], f Facts, out []Effect[int]) []Effect[int] {
		if isGranted {
			return m.Granted(f, out)
		}
		return m.NotGranted(f, o, out)
	})
	switch {
	case used && k.limit == 1 && State(p.line.state) != Holding:
		k.violated("a message is not used")
	case o.Answer == Refused && a.entry != 0 && s.hasten == 0 && got == 0 && !k.config.FreshTokens && p.ask.state != none:
		k.violated("a refusal is followed by another acquire")
	}
}

func (k *walker) message(w *scene, i, j int, late bool) {
	p := &w.procs[i]
	t := p.messages[j].token
	p.messages[j] = message{}
	if t == p.line.token && State(p.line.state) == Asking && p.got != 1 {
		p.got = 1 + bit(late)
	}
	k.run(w, i, "message", func(m *Machine[int], f Facts, out []Effect[int]) []Effect[int] {
		if x := k.mistake; x != nil && x.deludes {
			return m.Message(f, m.token.number, late, out)
		}
		return m.Message(f, uint64(t), late, out)
	})
}

// channel adds what happens to the channel of a process.
func (k *walker) channel(i int) {
	changed := func(w *scene) {
		if w.procs[i].line.subscribed == 1 {
			k.run(w, i, "changed", func(m *Machine[int], f Facts, out []Effect[int]) []Effect[int] { return m.Changed(f, out) })
		}
	}
	switch p := &k.from.procs[i]; Channel(p.channel) {
	case Open:
		k.spend(deaf, "channel breaks", i, func(w *scene) {
			w.procs[i].channel, w.procs[i].messages = uint8(Opening), [4]message{}
			changed(w)
		})
	case Opening:
		if p.line.subscribed == 1 {
			k.add("channel opens", i, false, func(w *scene) { w.procs[i].channel = uint8(Open); changed(w) })
			k.spend(deaf, "channel is refused", i, func(w *scene) { w.procs[i].channel = uint8(Closed); changed(w) })
		}
	}
}

// commands adds what Redis can do with the commands of a process.
func (k *walker) commands(i int) {
	p := &k.from.procs[i]
	switch p.ask.state {
	case sent:
		k.add("acquire runs", i, false, func(w *scene) { k.acquire(w, i) })
	case granted, refused:
		k.spend(twice, "acquire runs again", i, func(w *scene) { k.acquire(w, i) })
	}
	for j, r := range p.gives {
		if r.token == 0 || r.lost == 1 || j > 0 && r == p.gives[j-1] {
			continue
		}
		t := uint8(i)<<4 | r.token
		if r.behind == 0 || p.ask.state != sent {
			k.add("release runs", i, false, func(w *scene) { w.procs[i].gives[j] = release{}; k.release(w, t) })
			k.spend(twice, "release runs, and will again", i, func(w *scene) { k.release(w, t) })
		}
		k.spend(releaseLost, "release lost", i, func(w *scene) { w.procs[i].gives[j].lost = 1 })
	}
}

// server adds what happens in Redis alone, and the client of another library, which comes once.
func (k *walker) server() {
	for _, t := range k.from.keys {
		if t == 0 || t == foreignToken {
			continue
		}
		p := &k.from.procs[t>>4]
		trusted := false
		for _, c := range p.callers {
			trusted = trusted || c.state == holds && c.token == t&15
		}
		expires := func(w *scene) { w.expire(t) }
		switch {
		case k.from.orphan(t):
			k.add("expires", int(t>>4), false, expires)
		case !trusted || p.frozen == 1:
			k.spend(expiry, "expires", int(t>>4), expires)
		}
	}
	if k.from.queue[0].token != 0 {
		k.spend(queueLost, "queue is lost", 0, func(w *scene) { w.queue = [6]queued{} })
	}
	switch {
	case k.from.foreign == 0 && k.free(k.from) > 0:
		k.spend(foreigner, "foreign client acquires", 0, func(w *scene) { w.set(0, foreignToken); w.foreign = 1 })
	case k.from.foreign == 1:
		k.add("foreign client deletes", 0, false, func(w *scene) { w.set(foreignToken, 0); w.foreign = 2 })
	}
}

// start returns the first scene, with up to each faults of a kind and total in all.
func (g *game) start(each, total uint8) (w scene) {
	w.left = total
	for kind := range w.faults {
		w.faults[kind] = each
	}
	w.faults[foreigner] = min(each, 1)
	for i := range g.procs {
		w.procs[i].channel = uint8(g.channels[i])
	}
	return w
}

// A found is what an exploration has found.
type found struct {
	scenes, edges, ends int
	commands            int    // that run at most, in a blind game; -1: without a bound
	wrong               string // "": nothing
	history             string // the shortest one to that
}

// A shelf has all scenes that were found, in blocks that stay where they are.
type shelf struct {
	seed    maphash.Seed
	slots   []int32 // by hash: the number of a scene and one
	blocks  [][]scene
	parents []int32 // from which each was found first
}

const block = 1 << 12

func newShelf() *shelf { return &shelf{seed: maphash.MakeSeed(), slots: make([]int32, 1<<12)} }

func (s *shelf) at(n int32) *scene { return &s.blocks[n/block][n%block] }

func (s *shelf) len() int { return len(s.parents) }

// slot returns the slot of a scene, or a free one for it.
func (s *shelf) slot(w *scene) *int32 {
	for h := maphash.Bytes(s.seed, w.bytes()); ; h++ {
		slot := &s.slots[h%uint64(len(s.slots))]
		if *slot == 0 || *s.at(*slot - 1) == *w {
			return slot
		}
	}
}

// number returns the number of a scene, which is a new one if the scene was not found before.
func (s *shelf) number(w *scene, parent int32) int32 {
	slot := s.slot(w)
	if *slot > 0 {
		return *slot - 1
	}
	n := int32(s.len())
	*slot = n + 1
	if n%block == 0 {
		s.blocks = append(s.blocks, make([]scene, block))
	}
	*s.at(n) = *w
	s.parents = append(s.parents, parent)
	if 2*s.len() > len(s.slots) {
		s.slots = make([]int32, 4*len(s.slots))
		for i := range n + 1 {
			*s.slot(s.at(i)) = i + 1
		}
	}
	return n
}

// way returns the scenes through which a scene was found, without the first.
func (s *shelf) way(n int32) (scenes []scene) {
	for ; n > 0; n = s.parents[n] {
		scenes = append(scenes, *s.at(n))
	}
	slices.Reverse(scenes)
	return scenes
}

// explore walks all scenes, breadth first. It looks for one that is wrong, and for one with no way without faults to an end at
// which everybody was served and nothing is left.
func (g *game) explore(origin scene, limit int) (f found) {
	k := &walker{game: g, only: all}
	g.wrong = ""
	scenes := newShelf()
	first := g.canonical(&origin)
	scenes.number(&first, -1)
	var calm []way // without faults
	var ends []int32
	for n := int32(0); int(n) < scenes.len(); n++ {
		current := *scenes.at(n)
		if g.clean(&current) {
			ends = append(ends, n)
		}
		edges := k.steps(&current)
		f.edges += len(edges)
		for j := range edges {
			g.check(&edges[j].to)
		}
		if scenes.len() > limit {
			g.violated("more than %d scenes", limit)
		}
		if g.wrong != "" {
			f.wrong, f.history = g.wrong, k.history(origin, scenes.way(n))
			return f
		}
		for j := range edges {
			e := &edges[j]
			c := g.canonical(&e.to)
			to := scenes.number(&c, n)
			if !e.fault {
				calm = append(calm, way{n, to, e.command})
			}
		}
	}
	f.scenes, f.ends = scenes.len(), len(ends)
	if g.blind {
		f.commands = most(f.scenes, calm)
	}
	if n := stuck(f.scenes, calm, ends); n >= 0 {
		f.wrong, f.history = "no way to an end without faults", k.history(origin, scenes.way(n))
	}
	return f
}

// A way leads from one scene to another.
type way struct {
	from, to int32
	command  bool
}

// most returns how many commands run on any way from the first scene, or -1 if there is a cycle.
func most(n int, ways []way) (commands int) {
	out := make([][]way, n)
	before := make([]int, n) // ways that lead to it
	for _, e := range ways {
		out[e.from] = append(out[e.from], e)
		before[e.to]++
	}
	run := make([]int, n)
	todo, seen := []int32{0}, 0
	for len(todo) > 0 {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		seen++
		commands = max(commands, run[s])
		for _, e := range out[s] {
			run[e.to] = max(run[e.to], run[s]+int(bit(e.command)))
			if before[e.to]--; before[e.to] == 0 {
				todo = append(todo, e.to)
			}
		}
	}
	if seen < n {
		return -1
	}
	return commands
}

// history describes the steps from a scene through those of a way, and one more if that is wrong.
func (k *walker) history(from scene, way []scene) string {
	var log bytes.Buffer
	for n := range len(way) + 1 {
		isNext := func(to *scene) bool {
			return n == len(way) && k.wrong != "" || n < len(way) && k.canonical(to) == way[n]
		}
		to, text := k.find(&from, isNext)
		if to == nil && n > 0 {
			if to, text = k.find(&way[n-1], isNext); to != nil {
				log.WriteString("(from here on, other names of the processes)\n")
			}
		}
		if to == nil {
			break
		}
		log.WriteString(text)
		from = *to
	}
	return log.String()
}

// find returns the first step to a scene with a property, and what happens in it.
func (k *walker) find(from *scene, is func(to *scene) bool) (to *scene, text string) {
	count := len(k.steps(from))
	defer func() { k.log, k.only = nil, all }()
	for j := range count {
		var log bytes.Buffer
		k.wrong, k.log, k.only = "", &log, j
		w := k.steps(from)[j].to
		k.check(&w)
		k.log, k.only = nil, all
		if is(&w) {
			return &w, log.String()
		}
	}
	return nil, ""
}

// stuck returns the first of n scenes from which calm edges do not lead to one of ends, or -1.
func stuck(n int, calm []way, ends []int32) int32 {
	heads, nexts := make([]int32, n), make([]int32, len(calm))
	for i := range heads {
		heads[i] = -1
	}
	for i, e := range calm {
		nexts[i], heads[e.to] = heads[e.to], int32(i)
	}
	good := make([]bool, n)
	for _, e := range ends {
		good[e] = true
	}
	for todo := ends; len(todo) > 0; {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for i := heads[s]; i >= 0; i = nexts[i] {
			if from := calm[i].from; !good[from] {
				good[from] = true
				todo = append(todo, from)
			}
		}
	}
	for s := range good {
		if !good[s] {
			return int32(s)
		}
	}
	return -1
}

var lockConfig = Config{
	Queues: true, Passes: 63, TTL: 10 * time.Second, Shortest: 8 * time.Millisecond, Longest: 128 * time.Millisecond,
}

func with(c Config, change func(c *Config)) Config {
	change(&c)
	return c
}

// games are the worlds to explore. Each is walked with at most one fault of each kind, and with total of them in all. A client of
// another library counts as a fault. Without -line.wide, two processes with two callers each make more than a million scenes,
// where those that differ only in the order of the processes count once.
//
// The games have no clock: looks come at any time, a lease that nobody trusts may end at any time, and a reply or a message may
// be too late at any time. A turn may pass the lock on, or not. Commands of one process run in any order, but for a pair, and
// but for a release that undoes an acquire. A message may come at any later time. Limits of a turn, pauses and
// the deadlines of callers are subjects of the scenarios.
var games = []struct {
	name  string
	total uint8
	game  game
}{
	{"two processes, two callers each", 2, game{procs: 2, callers: 2, limit: 1, config: lockConfig, channels: allOpen}},
	{"three processes", 2, game{procs: 3, callers: 1, limit: 1, config: lockConfig, channels: allOpen}},
	{"channels open late", 1, game{procs: 2, callers: 2, limit: 1, config: lockConfig, channels: [3]Channel{Opening, Opening}}},
	{"one without messages", 1, game{procs: 2, callers: 2, limit: 1, config: lockConfig, channels: [3]Channel{Open, Closed}}},
	{"replicas confirm", 1, game{
		procs: 2, callers: 2, limit: 1, config: with(lockConfig, func(c *Config) { c.Confirms = true }), channels: allOpen,
	}},
	{"one in a hurry", 1, game{
		procs: 2, callers: 2, limit: 1, config: lockConfig, channels: allOpen, hurried: [3]bool{false, true},
	}},
	{"polling", 1, game{
		procs: 2, callers: 2, limit: 1, config: with(lockConfig, func(c *Config) { c.Queues = false }), channels: allOpen,
	}},
	{"a fresh token for each attempt", 1, game{
		procs: 2, callers: 2, limit: 1, config: with(lockConfig, func(c *Config) { c.Queues, c.FreshTokens = false, true }), channels: allOpen,
	}},
	{"semaphore", 1, game{
		procs: 2, callers: 2, limit: 2, config: with(lockConfig, func(c *Config) { c.Shares = true }), channels: allOpen,
	}},
	{"semaphore of three processes", 1, game{
		procs: 3, callers: 1, limit: 2, config: with(lockConfig, func(c *Config) { c.Shares = true }), channels: allOpen,
	}},
}

var allOpen = [3]Channel{Open, Open, Open}

// raced reports whether the race detector slows the test down tenfold.
func raced() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

func TestNothingGoesWrongInAnyShortHistory(t *testing.T) {
	for _, c := range games {
		t.Run(c.name, func(t *testing.T) {
			each, total, limit := uint8(1), c.total, 2_000_000
			switch {
			case *wide:
				each, total, limit = 2, total+1, 50_000_000
			case testing.Short() || raced():
				total--
			}
			began := time.Now()
			f := c.game.explore(c.game.start(each, total), limit)
			if f.wrong != "" {
				t.Fatalf("%s\n%s", f.wrong, f.history)
			}
			t.Logf("%d scenes, %d edges, %d ends, %v", f.scenes, f.edges, f.ends, time.Since(began).Round(time.Millisecond))
		})
	}
}

// Without faults, messages are enough: no look is needed, and the number of commands is bounded. Each turn needs two, and a line
// that could not queue at first one more.
func TestMessagesAreEnoughWithoutFaults(t *testing.T) {
	for _, c := range []struct {
		name     string
		commands int
		game     game
	}{
		{"two processes, two callers each", 8, game{procs: 2, callers: 2, limit: 1, config: lockConfig, channels: allOpen}},
		{"three processes", 6, game{procs: 3, callers: 1, limit: 1, config: lockConfig, channels: allOpen}},
		{"channels open late", 10, game{procs: 2, callers: 2, limit: 1, config: lockConfig, channels: [3]Channel{Opening, Opening}}},
		{"semaphore", 8, game{
			procs: 2, callers: 2, limit: 2, config: with(lockConfig, func(c *Config) { c.Shares = true }), channels: allOpen,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.game.blind = true
			f := c.game.explore(c.game.start(0, 0), 1_000_000)
			if f.wrong != "" {
				t.Fatalf("%s\n%s", f.wrong, f.history)
			}
			if f.commands != c.commands {
				t.Errorf("up to %d commands run, not %d", f.commands, c.commands)
			}
			t.Logf("%d scenes, %d edges, %d ends", f.scenes, f.edges, f.ends)
		})
	}
}
