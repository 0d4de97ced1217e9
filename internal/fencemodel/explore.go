package fencemodel

// This file has the steps of the explored world. Messages in flight may arrive at any time and in any order.
//
// A lost message is one that never arrives, so there is no step for it. A refused request counts as lost. There is no
// step for the arrival of a reply either: when a client decides, it chooses which of the replies sent so far have reached
// it. An attempt begins when its first acquire arrives. If it began earlier, fewer grants would have returned before it,
// and less would have to hold.
//
// With bounds.plain, the end of a lock on a node and the end of an attempt are steps of their own. Otherwise fewer steps
// reach the same grants:
//
//  - A lock vanishes when another message arrives at its node. Before that only its owner could notice, by a
//    refused raise, which counts as lost. A release is one way in which a lock vanishes.
//  - An attempt is given up when its client begins another one, or when a node is emptied. Giving up has no other effect
//    than never deciding.
//  - A raise or a heal that would change nothing does not arrive. It counts as lost.

// An explorer computes the possible next steps.
type explorer struct {
	rules
	bounds
	cut bool // a counter exceeded maxFence, and its state was skipped
}

// roots returns the states in which the world can begin. It leaves out states that differ only in the order of the nodes.
func (x *explorer) roots() []state {
	var s state
	s.resends, s.wipes = x.resends, x.wipes
	for t := x.attempts; t < maxAttempts; t++ {
		s.attempts[t].phase = over
	}
	var all []state
	for i := range x.counters + 1 {
		for j := range i + 1 {
			for k := range j + 1 {
				s.nodes[0].counter, s.nodes[1].counter, s.nodes[2].counter = i, j, k
				all = append(all, s)
			}
		}
	}
	return all
}

// next calls emit with every step that is possible in s, and with the state after that step. The pointer is valid until
// emit returns.
func (x *explorer) next(s *state, emit func(step, *state)) {
	begun := false
	for t := range s.attempts {
		switch s.attempts[t].phase {
		case fresh:
			if !begun { // All fresh attempts are the same.
				x.begin(s, t, emit)
			}
			begun = true
		case voting:
			x.decisions(s, t, emit)
		case raising:
			x.rounds(s, t, emit)
		case granted:
			x.heal(s, t, emit)
		}
		for n := range s.nodes {
			x.deliver(s, t, n, emit)
		}
		if x.plain && s.attempts[t].open() {
			to := *s
			to.attempts[t].phase = over
			emit(step{kind: givesUp, attempt: t}, &to)
		}
	}
	for n := range s.nodes {
		x.deliverLate(s, n, emit)
		if x.plain && s.nodes[n].holder != 0 {
			to := *s
			to.nodes[n].holder = 0
			emit(step{kind: vanishes, node: n}, &to)
		}
	}
	x.wipe(s, emit)
}

// nobody stands for the token of any attempt that has ended and can do nothing more on a node.
const nobody token = maxAttempts + 1

// acquire takes step 1 on a node of a world without a clock. It returns 0 if the node refuses, or if the state is skipped
// because its counter is too large.
func (x *explorer) acquire(n *node, t token) fence {
	if n.counter >= maxFence {
		x.cut = true
		return 0
	}
	vote, _ := n.acquire(t, 0)
	return vote
}

// deliverLate lets an acquire arrive whose attempt has ended. The lock that it acquires is released.
func (x *explorer) deliverLate(s *state, n int, emit func(step, *state)) {
	if s.late[n] == 0 {
		return
	}
	to := *s
	to.nodes[n].holder = 0
	if x.acquire(&to.nodes[n], nobody) == 0 {
		return
	}
	p := step{kind: lateAcquireArrives, node: n}
	if to.resends > 0 {
		again := to
		again.resends--
		emit(p, &again)
	}
	to.late[n]--
	emit(p, &to)
}

// begin lets the first acquire of an attempt arrive. If every client already has an attempt, one client gives up its
// attempt.
func (x *explorer) begin(s *state, t int, emit func(step, *state)) {
	to := *s
	a := &to.attempts[t]
	a.phase = voting
	a.after = s.granted.highest()
	for n := range a.legs {
		a.legs[n].acquires = 1
	}
	busy := 0
	for i := range s.attempts {
		if s.attempts[i].open() {
			busy++
		}
	}
	if busy < x.clients {
		for n := range to.nodes {
			x.deliverAcquire(&to, t, n, 0, emit)
		}
		return
	}
	for i := range s.attempts {
		if x.plain || !s.attempts[i].open() {
			continue
		}
		instead := to
		instead.attempts[i].phase = over
		for n := range to.nodes {
			x.deliverAcquire(&instead, t, n, 1<<i, emit)
		}
	}
}

// deliver lets each request of an attempt to a node arrive.
func (x *explorer) deliver(s *state, t, n int, emit func(step, *state)) {
	if s.attempts[t].legs[n].acquires > 0 {
		x.deliverAcquire(s, t, n, 0, emit)
	}
	for f := range s.attempts[t].legs[n].raises.each {
		to := *s
		a := &to.attempts[t]
		leg := &a.legs[n]
		leg.raises &^= set(f)
		counter, ok := x.raise(&to.nodes[n], tokenOf(t), f) // 3.
		if !ok {
			continue
		}
		if a.phase == raising {
			leg.keep(x.classify(a.f, f, counter), a.f, counter)
		}
		if !x.plain && to.nodes[n] == s.nodes[n] && leg.said == s.attempts[t].legs[n].said {
			continue
		}
		emit(step{kind: raiseArrives, attempt: t, node: n, f: f}, &to)
	}
}

// deliverAcquire lets an acquire arrive. If resends are left, another copy stays in flight.
func (x *explorer) deliverAcquire(s *state, t, n int, ended uint8, emit func(step, *state)) {
	to := *s
	if !x.plain {
		to.nodes[n].holder = 0
	}
	a := &to.attempts[t]
	leg := &a.legs[n]
	vote := x.acquire(&to.nodes[n], tokenOf(t)) // 1.
	if vote == 0 {
		return
	}
	switch a.phase {
	case voting:
		leg.said |= set(vote)
	case raising:
		leg.keep(x.classify(a.f, 0, vote), a.f, vote)
	}
	p := step{kind: acquireArrives, attempt: t, node: n, f: vote, ended: ended}
	if to.resends > 0 {
		again := to
		again.resends--
		emit(p, &again)
	}
	leg.acquires--
	emit(p, &to)
}

// wipe deletes the lock and the counter of a node. It does so while nobody acquires, and only if a quorum of the other
// nodes has the highest fence or was healed by its owner. Without a clock, healing protects against no other loss.
func (x *explorer) wipe(s *state, emit func(step, *state)) {
	if s.wipes == 0 {
		return
	}
	to := *s
	to.wipes--
	p := step{kind: isEmptied}
	for t := range s.attempts {
		if s.attempts[t].open() {
			if x.plain {
				return
			}
			to.attempts[t].phase = over
			p.ended |= 1 << t
		}
	}
	for n := range s.nodes {
		remember := 0
		for m := range s.nodes {
			if m != n && (s.nodes[m].counter >= s.granted.highest() || s.healed&(1<<m) != 0) {
				remember++
			}
		}
		if remember >= majority {
			emptied := to
			emptied.nodes[n] = node{}
			emptied.healed &^= 1 << n
			p.node = n
			emit(p, &emptied)
		}
	}
}
