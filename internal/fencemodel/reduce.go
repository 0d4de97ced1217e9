package fencemodel

import (
	"cmp"
	"slices"
)

// reduce makes states equal that differ only in parts that can have no effect any more, or in the order of attempts
// and of nodes. It returns their earlier order.
func (x *explorer) reduce(s *state) names {
	var from names
	for i := range from.attempts {
		from.attempts[i] = i
	}
	for i := range from.nodes {
		from.nodes[i] = i
	}
	if x.plain {
		return from
	}
	x.forget(s)
	x.order(s, &from)
	return from
}

// forget drops what can have no effect on a grant.
func (x *explorer) forget(s *state) {
	lowest, more := x.lowest(s)
	if !more {
		*s = state{}
		for t := range s.attempts {
			s.attempts[t].phase = over
		}
		return
	}
	if s.wipes == 0 { // No later grant can collide with these.
		s.granted = s.granted.above(lowest - 1)
	}
	for t := range s.attempts {
		a := &s.attempts[t]
		if a.phase == granted && x.healsNothing(s, a.f) {
			a.phase = over
		}
		if a.phase == over {
			a.f = 0
		}
		if !a.open() {
			x.forgetLegs(s, t)
		}
		for n := range a.legs {
			if a.legs[n].acquires == 0 && s.nodes[n].holder != tokenOf(t) && !x.raiseAll {
				a.legs[n].raises = 0 // Nothing gives this token the lock again.
			}
		}
	}
	for n := range s.nodes {
		if s.nodes[n].holder == nobody {
			s.nodes[n].holder = 0
		}
		if s.nodes[n].counter >= s.granted.highest() || s.wipes == 0 {
			s.healed &^= 1 << n
		}
	}
}

// lowest returns a fence below which nothing will be granted, and whether anything will. It
// forgets the grants that an attempt is above already, whatever it is granted.
func (x *explorer) lowest(s *state) (lowest fence, more bool) {
	lowest = maxFence
	for t := range s.attempts {
		a := &s.attempts[t]
		if a.phase != fresh && !a.open() {
			continue
		}
		more = true
		least := fence(maxFence)
		if a.phase == raising {
			least = a.f
		}
		for n := range a.legs {
			leg := &a.legs[n]
			if a.phase == fresh || leg.acquires > 0 {
				least = min(least, s.nodes[n].counter+1)
			}
			for f := range leg.said.each {
				least = min(least, f)
			}
		}
		if a.after < least && s.wipes == 0 {
			a.after = 0
		}
		lowest = min(lowest, least)
	}
	return lowest, more
}

// forgetLegs drops what an attempt that has ended has under way. What may still land and
// needs its token stays; other acquires are nobody's.
func (x *explorer) forgetLegs(s *state, t int) {
	s.attempts[t].after = 0
	for n := range s.nodes {
		leg, node := &s.attempts[t].legs[n], &s.nodes[n]
		leg.said = 0
		if leg.acquires == 0 && !x.raiseAll {
			leg.raises = leg.raises.above(node.counter)
		}
		if leg.raises == 0 {
			s.late[n] += leg.acquires
			leg.acquires = 0
			if node.holder == tokenOf(t) {
				node.holder = 0
			}
		}
	}
}

// healsNothing reports whether the heals of a grant of f can have no effect any more.
func (x *explorer) healsNothing(s *state, f fence) bool {
	if s.wipes > 0 {
		return false
	}
	for n := range s.nodes {
		node := node{counter: s.nodes[n].counter}
		x.healNode(&node, nobody, f, 0)
		if node.counter != s.nodes[n].counter {
			return false
		}
	}
	return true
}

// order sorts the attempts, then the nodes. Attempts that look the same from every node may
// stay in either order: one state then counts as two.
func (x *explorer) order(s *state, from *names) {
	type ranked struct {
		key uint64
		was int
	}
	var attempts [maxAttempts]ranked
	for t := range s.attempts {
		a := &s.attempts[t]
		key := uint64(0)
		for n := range a.legs { // A sum, for the nodes have no order yet.
			key += mix(s.legOf(t, n)<<8 | uint64(s.nodes[n].counter))
		}
		attempts[t] = ranked{uint64(a.phase)<<56 | uint64(a.f)<<52 | uint64(a.after)<<48 | key>>16, t}
	}
	byKey := func(a, b ranked) int { return cmp.Compare(a.key, b.key) }
	if !slices.IsSortedFunc(attempts[:], byKey) {
		slices.SortStableFunc(attempts[:], byKey)
		old := *s
		for t, a := range attempts {
			s.attempts[t] = old.attempts[a.was]
			from.attempts[t] = a.was
			for n := range s.nodes {
				if old.nodes[n].holder == tokenOf(a.was) {
					s.nodes[n].holder = tokenOf(t)
				}
			}
		}
	}

	var nodes [explored]ranked
	for n := range s.nodes {
		key := uint64(s.nodes[n].counter)<<16 | uint64(s.late[n])<<8 | uint64(s.healed>>n&1)
		for t := range s.attempts {
			key = mix(key) + s.legOf(t, n)
		}
		nodes[n] = ranked{key, n}
	}
	if !slices.IsSortedFunc(nodes[:], byKey) {
		slices.SortStableFunc(nodes[:], byKey)
		old := *s
		s.healed = 0
		for n, r := range nodes {
			s.nodes[n] = old.nodes[r.was]
			s.late[n] = old.late[r.was]
			s.healed |= old.healed >> r.was & 1 << n
			for t := range s.attempts {
				s.attempts[t].legs[n] = old.attempts[t].legs[r.was]
			}
			from.nodes[n] = r.was
		}
	}
}

// legOf packs what is between an attempt and a node, and whether it has the lock there.
func (s *state) legOf(t, n int) uint64 {
	leg := s.attempts[t].legs[n]
	packed := uint64(leg.acquires)<<40 | uint64(leg.raises)<<24 | uint64(leg.said)<<8
	if s.nodes[n].holder == tokenOf(t) {
		packed |= 1
	}
	return packed
}

// mix scatters: the finalizer of SplitMix64.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}
