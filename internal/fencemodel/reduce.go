package fencemodel

import (
	"cmp"
	"slices"
)

// reduce makes states equal that differ only in parts without further effect, or in the order of attempts and nodes. It
// returns the earlier order of attempts and nodes.
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

// forget drops the parts of s that can have no effect on a later grant.
func (x *explorer) forget(s *state) {
	lowest, more := x.lowest(s)
	if !more {
		*s = state{}
		for t := range s.attempts {
			s.attempts[t].phase = over
		}
		return
	}
	if s.wipes == 0 { // Later grants are higher than what is dropped here.
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

// lowest returns a fence such that no later grant is lower, and whether there can be a later
// grant. It also forgets after of an attempt that can only get higher fences.
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

// forgetLegs drops the messages of an attempt that has ended. Requests that may still arrive and need its token stay.
// Other acquires become those of nobody.
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

// healsNothing reports whether heals with fence f can have no further effect.
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

// order sorts the attempts, and then the nodes. Attempts with equal keys stay in the order that they have, so one state
// can count as two.
func (x *explorer) order(s *state, from *names) {
	type ranked struct {
		key uint64
		was int
	}
	var attempts [maxAttempts]ranked
	for t := range s.attempts {
		a := &s.attempts[t]
		key := uint64(0)
		for n := range a.legs { // A sum, since the nodes have no order yet.
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

// legOf packs the leg of an attempt to a node, and whether the attempt holds the lock there.
func (s *state) legOf(t, n int) uint64 {
	leg := s.attempts[t].legs[n]
	packed := uint64(leg.acquires)<<40 | uint64(leg.raises)<<24 | uint64(leg.said)<<8
	if s.nodes[n].holder == tokenOf(t) {
		packed |= 1
	}
	return packed
}

// mix is the finalizer of SplitMix64. It spreads its input over all bits.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}
