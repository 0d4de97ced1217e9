package fencemodel

import (
	"hash/maphash"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// A result is what a search found.
type result struct {
	states int
	agreed fences   // granted somewhere, by votes
	acked  fences   // granted somewhere, by acknowledgements
	trace  []string // a shortest way to break a property; nil if there is none
	cut    bool     // a state was skipped because a counter was too large
}

// explore visits every state within b, breadth first, until one breaks a property.
func explore(r rules, b bounds) result {
	s := &search{rules: r, bounds: b, seed: maphash.MakeSeed()}
	for i := range s.seen {
		s.seen[i].from = map[mark]mark{}
	}
	x := s.explorer()
	var level []state
	for _, root := range x.roots() {
		x.reduce(&root)
		if s.add(s.mark(&root), 0) {
			level = append(level, root)
		}
	}
	for len(level) > 0 && s.broken == nil {
		level = s.expand(level)
	}
	s.found.states = s.states()
	if s.broken != nil {
		s.found.trace = s.trace()
	}
	return s.found
}

// search is one breadth-first search.
//
// It remembers only the marks of the states that it has seen. If two states have the same mark, it misses one of them.
// Among n states the probability of that is n²/2⁶⁵: 1 in 100,000 for 20 million.
type search struct {
	rules
	bounds
	seed maphash.Seed
	seen [64]shard

	mu     sync.Mutex // guards the fields below
	found  result
	broken *violation
}

// A mark is a state's fingerprint; 0 is none.
type mark uint64

type shard struct {
	mu   sync.Mutex
	from map[mark]mark // guarded by mu: by state, the one from which it was first reached
}

// violation is the step that breaks a property, and the state in which it was taken.
type violation struct {
	at   mark
	step step
}

func (s *search) explorer() explorer { return explorer{rules: s.rules, bounds: s.bounds} }

// mark is never 0.
func (s *search) mark(st *state) mark {
	return max(mark(maphash.Comparable(s.seed, *st)), 1)
}

// add reports whether m is new.
func (s *search) add(m, from mark) bool {
	shard := &s.seen[m%mark(len(s.seen))]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if _, ok := shard.from[m]; ok {
		return false
	}
	shard.from[m] = from
	return true
}

// from and states must not run while a level is expanded.
func (s *search) from(m mark) mark { return s.seen[m%mark(len(s.seen))].from[m] }

func (s *search) states() int {
	n := 0
	for i := range s.seen {
		n += len(s.seen[i].from)
	}
	return n
}

// expand returns the new states that are one step away from the states of a level.
func (s *search) expand(level []state) []state {
	const batch = 512
	var taken atomic.Int64
	next := make([][]state, runtime.GOMAXPROCS(0))
	var workers sync.WaitGroup
	for w := range next {
		workers.Go(func() { // It ends with the level, and expand waits for it.
			x := s.explorer()
			var found result
			for {
				start := int(taken.Add(batch)) - batch
				if start >= len(level) {
					break
				}
				for i := range level[start:min(start+batch, len(level))] {
					at := s.mark(&level[start+i])
					x.next(&level[start+i], func(p step, to *state) {
						switch p.kind {
						case votesAgree:
							found.agreed |= set(p.f)
						case isAcknowledged:
							found.acked |= set(p.f)
						}
						if p.breaks != "" {
							s.breaks(violation{at, p})
						}
						x.reduce(to)
						if s.add(s.mark(to), at) {
							next[w] = append(next[w], *to)
						}
					})
				}
			}
			found.cut = x.cut
			s.merge(found)
		})
	}
	workers.Wait()
	return slices.Concat(next...)
}

func (s *search) breaks(v violation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken == nil {
		s.broken = &v
	}
}

func (s *search) merge(found result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.found.agreed |= found.agreed
	s.found.acked |= found.acked
	s.found.cut = s.found.cut || found.cut
}
