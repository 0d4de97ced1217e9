package line

import (
	"fmt"
	"math/bits"
	"slices"
	"time"
	"unsafe"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/testing/explore"
)

// A scene is up to three processes, what is on its way, and one Redis. It has bytes only, so it is
// compared as a whole.
//
// Within a process, a token is a number from 1 on. In Redis, the number of the process stands in
// the upper half of the byte. An instant is the rank of an arrival: who came earlier has a lower
// one.
type scene struct {
	keys    [2]uint8 // tokens that hold the key. Only a semaphore uses the second one
	queue   [6]queued
	procs   [3]proc
	foreign uint8         // 0: did not come, 1: holds the key, 2: has left
	faults  [faults]uint8 // that may still happen, by kind
	left    uint8         // that may still happen in all
	newest  uint8         // arrival
}

type queued struct{ token, dash, score uint8 }

type proc struct {
	dead, frozen uint8
	channel      channel
	lapsed       uint8 // bit by caller: its lease ended while the process was frozen
	token        uint8 // with which the line may ask
	callers      [2]caller
	ask          acquire
	gives        [4]release
	messages     [4]message
	got          uint8 // 1: a message came while an acquire was under way, 2: its claim has ended since
	look         uint8 // a look is planned
	line         snapshot
}

// A channel brings messages if it is open.
type channel uint8

const (
	shut  channel = iota // for good
	opens                // sooner or later, once a line uses it
	open
	away // It is open on a server that is no longer the primary. The line does not know that.
)

type caller struct{ state, token, since, turn uint8 }

const (
	absent = iota
	waits
	holds
	done
)

// An acquire is on its way to Redis, or its reply is on its way back.
type acquire struct{ state, token, entry, score, again, fresh, late uint8 }

const (
	none = iota
	sent
	granted
	refused
	carried // by a release, as its next
)

// A release is behind the acquire that was sent just before, or may run. It may carry an acquire:
// then it queues the entry of next, unless the line has given the acquire up. It is repeated, so it
// may run at any later time. One that is lost never runs.
type release struct{ token, behind, lost, next uint8 }

func (r release) size() int { return int(r.next)<<6 | int(r.token)<<2 | int(r.behind)<<1 | int(r.lost) }

type message struct{ token, late uint8 }

// A snapshot is what a Machine remembers, but for times.
type snapshot struct {
	state, token, entry, seen, left uint8
	early, hasten, subscribed       uint8
	order                           [2]uint8 // callers in line, from 1 on
	joined                          [2]uint8 // of each: 0 has seen a refusal, 1 joined before the newest attempt, 2 after it
	mayServe, pass                  uint8    // of the turn
}

// Kinds of faults.
const (
	replyLost = iota // The outcome of an acquire is unknown.
	releaseLost
	messageLost
	deaf // The channel breaks, and what is on its way to it is lost.
	crash
	freeze
	expiry
	leaves // The ctx of a caller ends.
	loss   // A lease is lost before it ends.
	twice  // A command or a message is sent again.
	slow   // A grant comes too late, though Redis still has the key.
	queueLost
	passed // The first of the queue has kept others back for too long.
	foreigner
	faults
)

// now is the time of all events. Callers joined long before, at the instant of their rank.
const now = start

const foreignToken = 0xf0

// A game says what the processes of a scene are.
type game struct {
	procs, callers int
	limit          int     // of a semaphore, the largest of its callers; 1: a lock
	limits         [3]int  // of the callers of a process; 0: limit
	writes         [3]bool // the callers of a process exclude all others
	together       bool    // others share permits
	config         Config
	channels       [3]channel
	again          bool    // callers that are done may come again
	hurried        [3]bool // the callers of a process cannot wait for the queue
	polls          bool    // no line queues
	both           [3]bool // the line of a process polls at some events, and queues at others
	queues         bool    // this event is one of the others
	blind          bool    // no look comes
	m              Machine[int, uint64]
	places         [2]Caller[int]
	out            []Effect[int, uint64]
	wrong          string // what the newest step has violated
	from           *scene // the current one
	explore.Walk[scene]
}

// shares reports whether the line of a process goes on while a permit is out.
func (g *game) shares(i int) bool { return g.limit > 1 && !g.writes[i] }

// configOf returns the Config of the line of a process.
func (g *game) configOf(i int) Config {
	c := g.config
	c.Several = g.shares(i)
	c.Together = c.Several && g.together
	return c
}

func bit(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

func (g *game) violated(format string, args ...any) {
	if g.wrong == "" {
		g.wrong = fmt.Sprintf(format, args...)
	}
}

// thaw makes a line out of a snapshot.
func (g *game) thaw(p *proc, i int) {
	deadline := clock.Mono(0)
	if g.hurried[i] {
		deadline = now.Add(time.Second)
	}
	s := &p.line
	g.m = Machine[int, uint64]{
		Config: g.configOf(i), state: State(s.state), early: s.early == 1, hasten: s.hasten == 1, subscribed: s.subscribed == 1,
		attempts: 100, asked: now, due: now,
		token: token[uint64]{number: uint64(s.token), of: uint64(s.token), entry: Entry(s.entry), seen: clock.Mono(s.seen) * now, mayBeInRedis: s.left == 1},
		turn:  turn{began: now, last: uint64(s.mayServe), pass: int(s.pass)},
	}
	for i := range g.places {
		g.places[i] = Caller[int]{Of: i, Since: clock.Mono(p.callers[i].since), Deadline: deadline}
	}
	for i, n := range s.order {
		if n == 0 {
			break
		}
		c := &g.places[n-1]
		g.m.callers.join(c, now)
		if s.joined[i] == 0 {
			g.m.shown = c.number
		}
		if s.joined[i] < 2 {
			g.m.askedFor = c.number
		}
	}
	g.m.callers.told = g.m.callers.arrivals
}

// freeze makes a snapshot of the line.
func (g *game) freeze(p *proc) {
	m := &g.m
	s := snapshot{
		state: uint8(m.state), token: uint8(m.token.number), entry: uint8(m.token.entry), seen: bit(m.token.seen > 0),
		left: bit(m.token.mayBeInRedis), early: bit(m.early), hasten: bit(m.hasten), subscribed: bit(m.subscribed),
	}
	i := 0
	for c := m.callers.head; c != nil; c = c.next {
		s.order[i] = uint8(c.Of + 1)
		switch {
		case c.number <= m.shown:
		case c.number <= m.askedFor || m.state != Asking:
			s.joined[i] = 1
		default:
			s.joined[i] = 2
		}
		if m.state == Holding && c.number <= m.turn.last {
			s.mayServe++
		}
		i++
	}
	if m.state == Holding {
		s.pass = uint8(m.turn.pass)
	}
	p.line = s
}

// run hands an event to the line of a process, and carries out the effects.
func (g *game) run(w *scene, i int, event func(m *Machine[int, uint64], f Facts, out []Effect[int, uint64]) []Effect[int, uint64]) {
	p := &w.procs[i]
	g.thaw(p, i)
	m := &g.m
	facts := Facts{Now: now, Queues: !g.polls && (!g.both[i] || g.queues), Listens: p.channel >= open}
	if g.hurried[i] {
		facts.Took = time.Second
	}
	out := event(m, facts, g.out[:0])
	g.out = out[:0]
	asks := 0
	for j := range out {
		e := &out[j]
		if e.Kind == Ask || e.Next != 0 {
			if asks++; asks > 1 {
				g.violated("two acquires for one event")
			}
			if e.NewToken {
				e.Asks = uint64(w.unused(i))
			} else {
				e.Asks = e.Token
			}
		}
		if g.Log != nil {
			fmt.Fprintf(g.Log, "      %v\n", e)
		}
		g.carryOut(w, p, e, asks > 0)
	}
	if m.token.number > 99 {
		m.token.number = uint64(p.token)
		m.Made(uint64(p.token))
	}
	g.freeze(p)
	if State(p.line.state) != Waiting {
		p.look = 0
	}
}

// carryOut carries out one effect. asked says that an acquire was sent for the same event.
func (g *game) carryOut(w *scene, p *proc, e *Effect[int, uint64], asked bool) {
	if (e.Kind != Ask || !e.NewToken) && e.Of != e.Token {
		g.violated("an effect of token %d is about the attempt of token %d", e.Token, e.Of)
	}
	switch t := uint8(e.Token); e.Kind {
	case Ask:
		g.ask(w, p, e, sent)
	case Give:
		if p.ask.state != none && p.ask.token == t {
			g.violated("a token is given up while an acquire with it is under way")
		}
		if p.token == t {
			p.token = 0
		}
		r := release{token: t, behind: bit(asked && e.Next == 0 && p.ask.state == sent)}
		if e.Next != 0 {
			g.ask(w, p, e, carried)
			r.next = p.ask.token
		}
		g.give(p, r)
	case Serve:
		g.serve(p, e)
	case Fail:
		p.callers[e.Caller.Of].end()
	case Look:
		p.look = 1
	case Missed:
		if p.channel == away {
			p.channel = opens
		}
	}
}

// ask puts an acquire on its way.
func (g *game) ask(w *scene, p *proc, e *Effect[int, uint64], state uint8) {
	t := uint8(e.Asks)
	if p.ask.state != none {
		g.violated("two acquires under way")
	}
	if e.NewToken {
		p.token = t
	} else if p.token != t {
		g.violated("a token asks again that was given up")
	}
	p.ask = acquire{state: state, token: t, entry: uint8(e.Entry), score: w.score(e.Age), again: bit(e.Again)}
	p.got = 0
}

// score returns when somebody came whose age is known.
func (w *scene) score(age time.Duration) uint8 {
	if at := now.Add(-age); at <= clock.Mono(w.newest) {
		return uint8(at)
	}
	w.newest++
	return w.newest
}

func (c *caller) end() { *c = caller{state: done} }

func (g *game) serve(p *proc, e *Effect[int, uint64]) {
	shares := g.m.Several
	c := &p.callers[e.Caller.Of]
	if c.state != waits {
		g.violated("a caller is served that does not wait")
	}
	another := g.m.Together && e.Pass > 0 && p.uses(uint8(e.Token)) // reader with the same permit
	if p.token != uint8(e.Token) && !another {
		g.violated("a token serves that was given up")
	}
	for i := range p.callers {
		if o := &p.callers[i]; o.state == waits && o.since < c.since {
			g.violated("a caller is served before one who came earlier")
		}
	}
	if e.Pass > 0 && c.turn == 0 && !shares {
		g.violated("a turn serves a caller who came later")
	}
	*c = caller{state: holds, token: uint8(e.Token)}
	for i := range p.callers {
		if e.Pass == 0 && !shares && p.callers[i].state == waits {
			p.callers[i].turn = 1
		}
	}
	if shares {
		p.token = 0
	}
}

// uses reports whether a caller holds a token.
func (p *proc) uses(t uint8) bool {
	return slices.ContainsFunc(p.callers[:], func(c caller) bool { return c.state == holds && c.token == t })
}

// unused returns a token that nothing refers to.
func (w *scene) unused(i int) uint8 {
	var used uint32
	w.tokens(i, func(t *uint8) { used |= 1 << *t })
	return uint8(bits.TrailingZeros32(^(used | 1)))
}

// tokens calls f for all places with tokens of a process. f may rename the token.
func (w *scene) tokens(i int, f func(t *uint8)) {
	inRedis := func(t *uint8) {
		if int(*t>>4) == i && *t&15 != 0 {
			n := *t & 15
			f(&n)
			*t = uint8(i)<<4 | n
		}
	}
	for k := range w.keys {
		inRedis(&w.keys[k])
	}
	for k := range w.queue {
		inRedis(&w.queue[k].token)
	}
	p := &w.procs[i]
	own := func(t *uint8) {
		if *t != 0 {
			f(t)
		}
	}
	own(&p.line.token)
	own(&p.token)
	own(&p.ask.token)
	for k := range p.callers {
		own(&p.callers[k].token)
	}
	for k := range p.messages {
		own(&p.messages[k].token)
	}
	for k := range p.gives {
		own(&p.gives[k].token)
		own(&p.gives[k].next)
	}
}

// The server.

func (w *scene) has(t uint8) bool { return t != 0 && (w.keys[0] == t || w.keys[1] == t) }

// fits reports whether Redis may grant the key to a process.
func (g *game) fits(w *scene, i int) bool {
	held := 0
	for _, t := range w.keys {
		if t != 0 && t != foreignToken && g.writes[t>>4] {
			return false
		}
		held += int(bit(t != 0))
	}
	switch {
	case g.writes[i]:
		return held == 0
	case g.limits[i] > 0:
		return held < g.limits[i]
	}
	return held < g.limit
}

func (w *scene) set(from, to uint8) {
	if w.keys[0] == from {
		w.keys[0] = to
	} else if w.keys[1] == from {
		w.keys[1] = to
	}
}

func (w *scene) place(t uint8) int {
	return slices.IndexFunc(w.queue[:], func(q queued) bool { return q.token == t })
}

func (w *scene) dequeue(t uint8) {
	if k := w.place(t); k >= 0 {
		copy(w.queue[k:], w.queue[k+1:])
		w.queue[len(w.queue)-1] = queued{}
	}
}

func (w *scene) enqueue(q queued) {
	k := 0
	for w.queue[k].token != 0 && w.queue[k].score <= q.score {
		k++
	}
	copy(w.queue[k+1:], w.queue[k:])
	w.queue[k] = q
}

// acquire runs the acquire of a process.
func (g *game) acquire(w *scene, i int) {
	a := &w.procs[i].ask
	t := uint8(i)<<4 | a.token
	a.state, a.fresh, a.late = granted, a.again&^bit(w.place(t) >= 0 || w.has(t)), 0
	enqueue := func() {
		if a.entry != uint8(NoEntry) && w.place(t) < 0 {
			w.enqueue(queued{t, bit(a.entry == uint8(Dashed)), a.score})
		}
	}
	blocked := false
	if !w.has(t) && g.fits(w, i) && w.queue[0].token != 0 { // others come first
		enqueue()
		blocked = g.handOn(w, t)
	}
	switch {
	case w.has(t):
	case !blocked && g.fits(w, i):
		w.set(0, t)
	default:
		a.state = refused
		enqueue()
		return
	}
	w.dequeue(t)
}

// give puts a release on its way.
func (g *game) give(p *proc, r release) {
	k := slices.Index(p.gives[:], release{})
	if k < 0 {
		g.violated("releases pile up")
		return
	}
	p.gives[k] = r
}

// release runs a release of a process.
func (g *game) release(w *scene, i int, r release) {
	t, p := uint8(i)<<4|r.token, &w.procs[i]
	withdrawn := w.place(t) >= 0
	w.dequeue(t)
	in := p.ask.state == carried && p.ask.token == r.next && r.next != 0 // it comes in time
	if in {
		p.ask.state = refused
	}
	if !w.has(t) {
		if g.limit > 1 && withdrawn { // it may have kept others back
			g.handOn(w, 0)
			g.headWaits(w)
		}
		return
	}
	w.set(t, 0)
	if next := uint8(i)<<4 | r.next; in && w.place(next) < 0 {
		w.enqueue(queued{next, bit(p.ask.entry == uint8(Dashed)), p.ask.score})
	}
	g.handOn(w, 0)
	g.headWaits(w)
}

// headWaits: after a release, the first of the queue does not fit.
func (g *game) headWaits(w *scene) {
	q := w.queue[0]
	p := &w.procs[q.token>>4]
	if q.token != 0 && g.limit > 1 && (q.dash == 1 || p.dead == 0 && p.channel == open) && (w.has(q.token) || g.fits(w, int(q.token>>4))) {
		g.violated("after a release, the head of the queue fits")
	}
}

// handOn hands the key to the first of the queue, up to the entry of mine, and up to the first that
// does not fit. It reports whether that keeps others back.
func (g *game) handOn(w *scene, mine uint8) (blocked bool) {
	for w.queue[0].token != 0 && w.queue[0].token != mine {
		q := w.queue[0]
		p := &w.procs[q.token>>4]
		listens := p.dead == 0 && p.channel == open
		if !listens && q.dash == 0 {
			w.dequeue(q.token)
			continue
		}
		if !w.has(q.token) && !g.fits(w, int(q.token>>4)) {
			return true
		}
		w.dequeue(q.token)
		if !w.has(q.token) {
			w.set(0, q.token)
		}
		if listens {
			k := slices.Index(p.messages[:], message{})
			if k < 0 { // the line does not listen to one for a token that it has given up
				k = slices.IndexFunc(p.messages[:], func(m message) bool { return m.token != p.line.token })
			}
			if k < 0 {
				g.violated("messages pile up")
				return false
			}
			p.messages[k] = message{q.token & 15, 0}
		}
		if g.limit == 1 {
			break
		}
	}
	return false
}

// expire ends what a token has in Redis. What is on its way has come too late then.
func (w *scene) expire(t uint8) {
	w.set(t, 0)
	p := &w.procs[t>>4]
	n := t & 15
	for k := range p.messages {
		if p.messages[k].token == n {
			p.messages[k].late = 1
		}
	}
	if p.ask.token == n {
		p.ask.late = bit(p.ask.state == granted)
	}
	if p.line.token == n && p.got == 1 {
		p.got = 2
	}
	for k := range p.callers {
		if p.callers[k].state == holds && p.callers[k].token == n {
			p.lapsed |= 1 << k
		}
	}
}

// check returns what is wrong.
func (g *game) check(w *scene) {
	owners, writers := 0, 0
	for i := range g.procs {
		counted := uint8(0)
		p := &w.procs[i]
		if p.dead == 1 {
			continue
		}
		s := &p.line
		holding := 0
		for k := range p.callers {
			if p.callers[k].state != holds {
				continue
			}
			holding++
			if p.lapsed&(1<<k) == 0 {
				owners += int(bit(!g.together || counted != p.callers[k].token))
				counted = p.callers[k].token
				writers += int(bit(g.writes[i]))
				if !w.has(uint8(i)<<4 | p.callers[k].token) {
					g.violated("an owner trusts a key that it does not have")
				}
			}
		}
		waiting := s.order[0] != 0
		switch state := State(s.state); {
		case !g.shares(i) && ((state == Holding) != (holding == 1) || holding > 1):
			g.violated("Holding is not one caller that holds")
		case (state == Asking) != (p.ask.state != none):
			g.violated("Asking is not one acquire under way")
		case state == Idle && waiting || state == Waiting && !waiting:
			g.violated("callers of an idle line, or none of one that waits")
		case state == Waiting && p.look == 0:
			g.violated("no look is planned")
		case waiting && s.token != 0 && state != Holding:
			k := w.place(uint8(i)<<4 | s.token)
			if k >= 0 && w.queue[k].score > p.callers[s.order[0]-1].since {
				g.violated("a line queues behind its arrival")
			}
		}
	}
	if owners > g.limit || writers > 0 && owners > 1 {
		g.violated("two owners")
	}
}

// orphan reports whether nobody will release a token: its process has crashed, or the release was
// lost.
func (w *scene) orphan(t uint8) bool {
	if t == foreignToken {
		return false
	}
	p := &w.procs[t>>4]
	return p.dead == 1 || slices.ContainsFunc(p.gives[:], func(r release) bool { return r.token == t&15 && r.lost == 1 })
}

// clean reports whether everybody was served or has left, and nothing is left in Redis that will
// not end by itself.
func (g *game) clean(w *scene) bool {
	for i := range g.procs {
		p := &w.procs[i]
		if p.dead == 1 {
			continue
		}
		if State(p.line.state) != Idle || p.ask.state != none || p.messages != [4]message{} || p.frozen == 1 {
			return false
		}
		for k := range g.callers {
			if p.callers[k].state != done {
				return false
			}
		}
		for _, r := range p.gives {
			if r.token != 0 && r.lost == 0 {
				return false
			}
		}
	}
	for _, q := range w.queue {
		if q.token != 0 && !w.orphan(q.token) { // the queue has a TTL
			return false
		}
	}
	return w.keys == [2]uint8{} && w.foreign != 1
}

// tidy makes scenes equal that differ only in what cannot matter.
func (g *game) tidy(w *scene) {
	for i := range g.procs {
		p := &w.procs[i]
		if p.dead == 1 {
			d := proc{dead: 1, gives: p.gives}
			if p.ask.state == sent || p.ask.state == carried {
				d.ask = p.ask
			}
			*p = d
		}
		for k := range p.gives {
			r := &p.gives[k]
			if p.ask.state != carried || p.ask.token != r.next { // it comes too late for that
				r.next = 0
			}
			if t := uint8(i)<<4 | r.token; r.token != 0 && r.next == 0 && !w.has(t) && w.place(t) < 0 { // it will find nothing
				*r = release{}
			} else if p.ask.state != sent {
				r.behind = 0
			}
		}
		if State(p.line.state) != Holding {
			for k := range p.callers {
				p.callers[k].turn = 0
			}
		}
		if State(p.line.state) != Asking {
			p.got = 0
		}
		if p.frozen == 0 {
			p.lapsed = 0
		}
		g.rename(w, i)
	}
	w.rank()
}

// rename numbers the tokens of a process in the order in which they are found, and sorts what has
// no order.
func (g *game) rename(w *scene, i int) {
	var names [16]uint8
	next := uint8(0)
	w.tokens(i, func(t *uint8) {
		if names[*t] == 0 {
			next++
			names[*t] = next
		}
		*t = names[*t]
	})
	p := &w.procs[i]
	slices.SortFunc(p.gives[:], func(a, b release) int { return b.size() - a.size() })
	slices.SortFunc(p.messages[:], func(a, b message) int { return int(b.token<<1|b.late) - int(a.token<<1|a.late) })
}

// rank numbers the arrivals anew, in the same order.
func (w *scene) rank() {
	var used [256]bool
	each := func(f func(t *uint8)) {
		for i := range w.procs {
			p := &w.procs[i]
			for k := range p.callers {
				f(&p.callers[k].since)
			}
			f(&p.ask.score)
		}
		for k := range w.queue {
			f(&w.queue[k].score)
		}
	}
	each(func(t *uint8) { used[*t] = true })
	var ranks [256]uint8
	next := uint8(0)
	for t := 1; t <= int(w.newest); t++ {
		if used[t] {
			next++
			ranks[t] = next
		}
	}
	each(func(t *uint8) { *t = ranks[*t] })
	w.newest = next
}

// key appends the bytes of the scene with process order[i] as process i.
func (w *scene) key(b []byte, order [3]uint8) []byte {
	v := *w
	var now [3]uint8
	for i, from := range order {
		v.procs[i], now[from] = w.procs[from], uint8(i)
	}
	move := func(t *uint8) {
		if *t != 0 && *t != foreignToken {
			*t = now[*t>>4]<<4 | *t&15
		}
	}
	for k := range v.keys {
		move(&v.keys[k])
	}
	for k := range v.queue {
		move(&v.queue[k].token)
	}
	return append(b, unsafe.Slice((*byte)(unsafe.Pointer(&v)), unsafe.Sizeof(v))...)
}
