package quorum

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"slices"
)

// This file has the explored world: nodes that run models of the scripts, and tries, each of which
// is one client with one token. What a script answers, and what a client does with a result, is a
// step of its own.

const (
	mostNodes = 5
	mostTries = 3
	mostOps   = 5
)

// A world is the state of everything. Its tries are shared with other worlds until own is called.
type world struct {
	nodes   [mostNodes]node
	size    int // how many nodes there are
	tries   [mostTries]*try
	clients int
	budget
	fences uint64 // by bit: fences that were granted
	loose  bool   // keys may vanish while their leases last, so only fences tell owners apart
	faulty bool   // a fault has happened
	wiped  bool   // a node has restarted empty
	broken string // what must hold and does not
}

type node struct {
	holder  uint8 // 1 + the try
	away    bool  // it has restarted and stays away
	counter uint64
}

// A try is a client with its token.
type try struct {
	token   Token
	ops     [mostOps]Op
	live    [mostOps]bool  // begun and not finished
	covers  [mostOps]uint8 // of an extension: what it renews of must
	did     [mostOps]uint8 // by bit: nodes that have done the operation
	begun   int
	msgs    []msg
	phase   phase
	dead    bool   // it has crashed
	lapsed  bool   // its lease has ended, so its keys may expire
	fence   uint64 // that it was granted
	after   uint64 // the highest fence that was granted before it began
	must    uint8  // by bit: nodes that must stay away, since the lease may rest on what they had
	unheard uint8  // by bit: nodes to which a release was lost
	doubt   uint8  // by bit: nodes where the key was set, or may have been
}

type phase uint8

const (
	idle phase = iota
	asking
	holding // trusts the lock
	leaving
	over
)

// A msg is a command under way, or its answer.
type msg struct {
	op    int8
	node  int8
	step  Step
	state state
	open  bool // an earlier send is under way as well
	fence uint64
	got   Outcome // the answer
	vote  uint64
}

type state uint8

const (
	sent     state = iota
	answered       // carried out
	orphan         // nobody waits for the answer
	settling       // not a command: an earlier send may be carried out until then
)

// The kinds of steps that are bounded.
type kind uint8

const (
	lostReply kind = iota // the command times out, and may be carried out later unless it creates
	lostCommand
	failsEarly // the command fails, and may be carried out until its timeout
	twice
	crashes
	lapses
	wipes
	renewals
	adoptions
	silence  // an acquire begins, and a node was silent before
	gone     // a caller leaves during the acquire, and its client releases the lock
	vanishes // a key is gone, in a loose world
	unsent   // an acquire is known not to have been sent
	kinds
)

// A budget says which faults and other bounded steps may still happen.
type budget struct {
	left  [kinds]int8
	total int8
}

func newWorld(n, tries int, b budget, counters ...uint64) world {
	w := world{size: n, clients: tries, budget: b}
	for i, c := range counters {
		w.nodes[i].counter = c
	}
	for i := range tries {
		w.tries[i] = &try{token: New(n)}
	}
	return w
}

// own makes a copy of a try that belongs to w alone.
func (w *world) own(i int) *try {
	old := w.tries[i]
	t := *old
	t.token.nodes = slices.Clone(old.token.nodes)
	t.msgs = slices.Clone(old.msgs)
	for j := range t.begun {
		if o := &t.ops[j]; t.live[j] {
			o.nodes = slices.Clone(o.nodes)
		}
		t.ops[j].token = &t.token
		if old.token.release == &old.ops[j] {
			t.token.release = &t.ops[j]
		}
	}
	w.tries[i] = &t
	return &t
}

// run hands an event to the core, and carries out the effects.
func (x *explorer) run(w *world, i int, event func(t *try, out []Effect) []Effect) {
	t := w.tries[i]
	var room [16]Effect
	x.carry(w, i, event(t, room[:0]))
}

func (x *explorer) carry(w *world, i int, out []Effect) {
	t := w.tries[i]
	for _, e := range out {
		op := 0
		for e.Op != &t.ops[op] {
			op++
		}
		if e.Step == Finish {
			x.finish(w, i, op)
			continue
		}
		if e.Step == Release && t.doubt&(1<<e.Node) == 0 {
			w.broken = "a release where nothing can be"
		}
		t.msgs = append(t.msgs, msg{op: int8(op), node: int8(e.Node), step: e.Step, fence: e.Fence})
	}
}

// begin begins an operation.
func (x *explorer) begin(w *world, i int, step Step, silent uint64) {
	t := w.tries[i]
	op := t.begun
	t.begun++
	t.live[op], t.covers[op] = true, t.must
	if step == Acquire || step == Mint {
		t.after = w.top()
	}
	x.run(w, i, func(t *try, out []Effect) []Effect { return t.token.Begin(&t.ops[op], step, silent, out) })
}

// finish is what a client does with a result.
func (x *explorer) finish(w *world, i, op int) {
	t := w.tries[i]
	o := &t.ops[op]
	if !t.live[op] {
		w.broken = "an operation finished twice"
	}
	t.live[op] = false
	if o.Result == OK && bits.OnesCount8(t.did[op]) <= w.size/2 {
		w.broken = "done by less than a quorum"
	}
	if x.seen != nil {
		by := ""
		if o.Result == OK && slices.ContainsFunc(o.nodes, func(m member) bool { return m.asked > 0 }) {
			by = " by a raise"
		}
		x.seen[stepNames[o.step]+" "+resultNames[o.Result]+by] = true
	}
	trusts := t.phase == asking || t.phase == holding
	switch {
	case o.step == Acquire && o.Result == OK && t.lapsed && trusts: // the grant comes too late
		t.phase = leaving
		x.begin(w, i, Release, 0)
	case (o.step == Acquire || o.step == Mint) && o.Result == OK:
		if !trusts {
			w.broken = "done after a release began"
		}
		t.phase, t.fence = holding, o.Fence
		if before := w.top(); t.fence <= t.after || w.fences&(1<<t.fence) != 0 || t.fence <= before && !w.loose {
			w.broken = "a fence that does not grow"
		}
		w.fences |= 1 << t.fence
		if o.step == Mint {
			t.must &^= t.covers[op]
		}
	case o.step == Acquire && t.token.release != o: // a release ends the client
	case o.step == Acquire:
		t.phase, t.must = over, 0
		for n := range w.size {
			if !w.faulty && o.Outcome(n) == Done && int(w.nodes[n].holder) == i+1 {
				w.broken = "a refused attempt finished before its keys were released"
			}
		}
		if o.Result == Refused && o.counts()[Held] == 0 {
			w.broken = "refused, and nobody showed another owner"
		}
	case o.step == Release:
		t.phase, t.must = over, 0
	case o.Result == OK && t.phase != holding:
		w.broken = "extended after a release began"
	case o.Result == OK && t.phase == holding:
		t.must &^= t.covers[op]
	case o.Result == Lost && t.phase == holding:
		t.phase, t.must = leaving, 0
		x.begin(w, i, Release, 0)
	}
}

// give hands the answer to a command to the core, and removes the command.
func (x *explorer) give(w *world, i, k int, a Answer) {
	t := w.tries[i]
	m := t.msgs[k]
	t.msgs = slices.Delete(t.msgs, k, k+1)
	e := Effect{Op: &t.ops[m.op], Step: m.step, Node: int(m.node)}
	if m.step.Creates() && (a.Outcome == Failed || m.step == Restore) || m.open {
		t.doubt |= 1 << m.node
	}
	if m.step == Raise { // an extension has the fence from the client
		e.Fence = m.fence
	}
	x.run(w, i, func(t *try, out []Effect) []Effect { return t.token.Answer(e, a, out) })
}

// timeOut lets a command time out. What creates is not carried out any more.
func (x *explorer) timeOut(w *world, i, k int) {
	t := w.tries[i]
	m := t.msgs[k]
	if m.step.Creates() {
		t.tooLate(m)
		k = slices.IndexFunc(t.msgs, func(n msg) bool { return n.same(m) && n.state == m.state })
	} else if m.state == sent {
		t.msgs = append(t.msgs, m.as(orphan))
	}
	x.give(w, i, k, Answer{Outcome: Failed})
}

// as returns the same command in another state.
func (m msg) as(s state) msg {
	return msg{op: m.op, node: m.node, step: m.step, fence: m.fence, state: s}
}

// same reports whether both are sends of one command.
func (m msg) same(n msg) bool {
	return m.op == n.op && m.node == n.node && m.step == n.step && m.fence == n.fence
}

// tooLate removes earlier sends of a command that creates.
func (t *try) tooLate(m msg) {
	t.msgs = slices.DeleteFunc(t.msgs, func(n msg) bool { return n.state == orphan && n.same(m) })
}

// carryOut carries out a command on its node.
func (x *explorer) carryOut(w *world, i int, m msg) Answer {
	a := x.script(w, i, m)
	if m.step != Raise && a.Outcome == Done {
		w.tries[i].did[m.op] |= 1 << m.node
	}
	return a
}

// top returns the highest fence that was granted.
func (w *world) top() uint64 { return uint64(bits.Len64(w.fences|1) - 1) }

// script is the model of the scripts.
func (x *explorer) script(w *world, i int, m msg) Answer {
	n, token := &w.nodes[m.node], uint8(i+1)
	before := n.holder
	switch {
	case m.step == Acquire && before != 0 && before != token:
		return Answer{Outcome: Held}
	case m.step == Acquire:
		n.holder, w.tries[i].doubt = token, w.tries[i].doubt|1<<m.node
		n.counter++
		return Answer{Outcome: Done, Vote: n.counter}
	case m.step == Restore && before == 0:
		n.holder, w.tries[i].doubt = token, w.tries[i].doubt|1<<m.node
		n.counter = max(n.counter, m.fence)
		return Answer{Outcome: NotHeld}
	case before != token:
		return Answer{Outcome: NotHeld}
	case m.step == Raise, m.step == Extend, m.step == Restore:
		n.counter = max(n.counter, m.fence)
		return Answer{Outcome: Done, Vote: n.counter}
	case m.step == Mint:
		n.counter++
		return Answer{Outcome: Done, Vote: n.counter}
	case m.step == Release:
		n.holder = 0
	}
	return Answer{Outcome: Done}
}

// check returns what must hold in every state and does not.
func (w *world) check() string {
	if w.broken != "" {
		return w.broken
	}
	owners := 0
	for i, t := range w.tries {
		if t == nil || t.dead || t.phase == idle {
			continue
		}
		keys := 0
		for n := range w.size {
			if int(w.nodes[n].holder) == i+1 {
				keys++
			}
		}
		if t.phase == holding {
			owners++
			if keys <= w.size/2 && !w.wiped && !w.loose {
				return "an owner without a quorum of keys"
			}
		}
		if t.phase == over && len(t.msgs) == 0 && !slices.Contains(t.live[:], true) {
			for n := range w.size {
				if int(w.nodes[n].holder) == i+1 && t.unheard&(1<<n) == 0 {
					return "a key stays after all has ended"
				}
			}
		}
	}
	if owners > 1 && !w.loose {
		return "two owners"
	}
	return ""
}

// finished reports whether everybody has done what there was to do.
func (w *world) finished() bool {
	for _, t := range w.tries {
		if t != nil && !t.dead && (t.phase != over || len(t.msgs) > 0 || slices.Contains(t.live[:], true)) {
			return false
		}
	}
	return true
}

// leftovers reports whether tidy may drop something.
func (t *try) leftovers() bool {
	return slices.ContainsFunc(t.msgs, func(m msg) bool { return m.state == orphan && !m.step.Creates() })
}

// tidy drops what can have no effect.
func (w *world) tidy(i int) {
	t := w.tries[i]
	for k := range t.msgs {
		if m := &t.msgs[k]; m.state <= answered && (t.dead || !t.live[m.op] && !m.step.Creates()) && m.state == sent {
			*m = m.as(orphan)
		}
	}
	t.msgs = slices.DeleteFunc(t.msgs, func(m msg) bool {
		if m.state == answered || m.state == settling {
			return t.dead || m.state == answered && !t.live[m.op] && !m.step.Creates() && !t.owes(m)
		}
		if m.state != orphan || m.step.Creates() || int(w.nodes[m.node].holder) == i+1 {
			return false
		}
		for _, n := range t.msgs { // that may set the key before the orphan is carried out
			if n.node == m.node && n.step.Creates() && (n.state == sent || n.state == orphan) {
				return false
			}
		}
		return true
	})
}

// releases reports whether a release is under way to a node.
func (t *try) releases(n int) bool {
	return slices.ContainsFunc(t.msgs, func(m msg) bool { return m.step == Release && int(m.node) == n })
}

// owes reports whether an operation that is decided waits for the answer.
func (t *try) owes(m msg) bool { return t.ops[m.op].nodes[m.node].owed }

// key appends the same bytes for states which differ only in the order of the nodes. order is that
// of the clients.
func (w *world) key(b []byte, order [mostTries]uint8) []byte {
	var parts [mostNodes][]byte
	flag := func(b []byte, all ...bool) []byte {
		v := byte(0)
		for _, one := range all {
			v <<= 1
			if one {
				v |= 1
			}
		}
		return append(b, v)
	}
	b = flag(binary.LittleEndian.AppendUint32(b, uint32(w.fences)), w.faulty, w.wiped)
	b = append(b, byte(w.total))
	for _, v := range w.left {
		b = append(b, byte(v))
	}
	for _, i := range order {
		t := w.tries[i]
		if t == nil {
			continue
		}
		b = flag(append(b, byte(t.phase), byte(t.fence), byte(t.after), byte(t.begun)), t.dead, t.lapsed)
		if t.dead {
			continue
		}
		for j := range t.begun {
			o := &t.ops[j]
			b = flag(append(b, byte(o.step)), t.live[j], t.token.release == o)
			if t.live[j] {
				b = append(b, byte(o.Result), byte(o.Fence))
			}
		}
	}
	var room [mostNodes * 64]byte
	for n := range w.size {
		at := &w.nodes[n]
		holder := slices.Index(order[:], at.holder-1)
		p := flag(append(room[n*64:n*64:n*64+64], byte(holder), byte(at.counter)), at.away)
		for _, i := range order {
			t := w.tries[i]
			if t == nil || t.phase == idle {
				continue
			}
			bit := uint8(1) << n
			p = flag(p, t.token.nodes[n].creating, t.token.nodes[n].resent, t.token.nodes[n].gap, t.token.nodes[n].absent, t.must&bit != 0, t.unheard&bit != 0, t.doubt&bit != 0)
			for j := range t.begun {
				if o := &t.ops[j]; t.live[j] && !t.dead {
					m := &o.nodes[n]
					p = append(p, byte(m.Outcome), byte(m.Vote), byte(m.asked))
					p = flag(p, t.covers[j]&bit != 0, t.did[j]&bit != 0, m.silent, m.owed)
				}
			}
			p = t.appendMsgs(p, n)
		}
		parts[n] = p
	}
	slices.SortFunc(parts[:w.size], bytes.Compare)
	for _, p := range parts[:w.size] {
		b = append(append(b, byte(len(p))), p...)
	}
	return b
}

// appendMsgs appends the messages of one node, in an order of their own.
func (t *try) appendMsgs(p []byte, n int) []byte {
	var room [12]uint64
	all := room[:0]
	for i := range t.msgs {
		if m := &t.msgs[i]; int(m.node) == n {
			v := uint64(m.op)<<40 | uint64(m.step)<<36 | uint64(m.state)<<32 | m.fence<<24
			if m.open {
				v |= 1 << 45
			}
			if m.state == answered && t.live[m.op] {
				v |= uint64(m.got)<<16 | m.vote<<8
			}
			all = append(all, v)
		}
	}
	slices.Sort(all)
	p = append(p, byte(len(all)))
	for _, v := range all {
		p = binary.LittleEndian.AppendUint64(p, v)
	}
	return p
}
