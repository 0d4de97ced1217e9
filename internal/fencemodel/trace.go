package fencemodel

import (
	"fmt"
	"slices"
	"strings"
)

// A step is one thing that happens in the world.
type step struct {
	kind    kind
	attempt int
	node    int
	f       fence
	ended   uint8 // by bit: attempts that are given up first
	breaks  string
}

type kind uint8

const (
	acquireArrives kind = iota
	lateAcquireArrives
	raiseArrives
	startsRound
	votesAgree
	isAcknowledged
	heals
	vanishes
	givesUp
	isEmptied
)

// String names attempts a, b and so on, and nodes n1, n2 and so on.
func (p step) String() string {
	var b strings.Builder
	for i := range maxAttempts {
		if p.ended&(1<<i) != 0 {
			fmt.Fprintf(&b, "%c gives up; ", 'a'+i)
		}
	}
	who, where := 'a'+rune(p.attempt), p.node+1
	switch p.kind {
	case acquireArrives:
		fmt.Fprintf(&b, "n%d: %c's acquire arrives, vote %d", where, who, p.f)
	case lateAcquireArrives:
		fmt.Fprintf(&b, "n%d: the acquire of an ended attempt arrives", where)
	case raiseArrives:
		fmt.Fprintf(&b, "n%d: %c's raise to %d arrives", where, who, p.f)
	case startsRound:
		fmt.Fprintf(&b, "%c raises to %d", who, p.f)
	case votesAgree:
		fmt.Fprintf(&b, "%c is granted %d by its votes", who, p.f)
	case isAcknowledged:
		fmt.Fprintf(&b, "%c is granted %d by acknowledgements", who, p.f)
	case heals:
		fmt.Fprintf(&b, "n%d: %c's heal with fence %d arrives", where, who, p.f)
	case vanishes:
		fmt.Fprintf(&b, "n%d: the lock vanishes", where)
	case givesUp:
		fmt.Fprintf(&b, "%c gives up", who)
	case isEmptied:
		fmt.Fprintf(&b, "n%d is emptied", where)
	}
	if p.breaks != "" {
		b.WriteString(": NOT " + p.breaks)
	}
	return b.String()
}

// names map the index of each attempt and node in a state to its index in another state: the same state before it was
// sorted, or the first state of a trace.
type names struct {
	attempts [maxAttempts]int
	nodes    [explored]int
}

// trace repeats the steps that lead to the violation. Each attempt and node has the name that it had at the beginning.
func (s *search) trace() []string {
	var way []mark
	for m := s.broken.at; m != 0; m = s.from(m) {
		way = append(way, m)
	}
	slices.Reverse(way)

	x := s.explorer()
	var at state
	var called names
	for _, root := range x.roots() {
		names := x.reduce(&root)
		if s.mark(&root) == way[0] {
			at, called = root, names
		}
	}
	lines := []string{called.show(&at, "")}
	for _, m := range way[1:] {
		var to state
		var taken step
		var from names
		x.next(&at, func(p step, next *state) {
			names := x.reduce(next)
			if s.mark(next) == m {
				to, taken, from = *next, p, names
			}
		})
		taken = called.step(taken)
		at, called = to, called.after(from)
		lines = append(lines, called.show(&at, taken.String()))
	}
	return append(lines, called.show(&at, called.step(s.broken.step).String()))
}

// step returns p with the names of its attempts and of its node.
func (c names) step(p step) step {
	ended := p.ended
	p.ended = 0
	for t := range c.attempts {
		p.ended |= ended >> t & 1 << c.attempts[t]
	}
	p.attempt, p.node = c.attempts[p.attempt], c.nodes[p.node]
	return p
}

// after returns the names in a state that was reordered. from is its earlier order.
func (c names) after(from names) names {
	var to names
	for t := range to.attempts {
		to.attempts[t] = c.attempts[from.attempts[t]]
	}
	for n := range to.nodes {
		to.nodes[n] = c.nodes[from.nodes[n]]
	}
	return to
}

// show returns the counter of each node after a step, its holder if that still matters, and
// the step.
func (c names) show(s *state, step string) string {
	var nodes [explored]string
	for n := range s.nodes {
		nodes[c.nodes[n]] = fmt.Sprint(s.nodes[n].counter, "-")
		if h := s.nodes[n].holder; h != 0 {
			nodes[c.nodes[n]] = fmt.Sprintf("%d%c", s.nodes[n].counter, 'a'+c.attempts[h-1])
		}
	}
	return fmt.Sprint(nodes, " ", step)
}
