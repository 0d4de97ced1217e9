// Package line orders the callers of one process that wait for one key.
//
// They stand in a [Line], in the order in which they came. Whoever grants the key to the process begins a [Turn]. A turn
// serves the head of the line, and may serve those who stood in line when it began, one after the other. Whoever comes
// later, also one who was served before, waits for the next turn. So a turn serves each caller once, and it ends.
//
// The package has no locks of its own: its caller guards a line and its turns with one mutex.
package line

import "iter"

// A Place is where a caller stands in a line. It is zero, but for Of, until [Line.Join].
type Place[T any] struct {
	Of T // the caller

	in            bool
	number        uint64 // grows in the order of arrival
	before, after *Place[T]
}

// A Line has those who wait, in the order of arrival. The zero value is an empty line.
type Line[T any] struct {
	head, tail *Place[T]
	length     int
	arrivals   uint64
}

// Join adds a place at the end. It must not be in a line.
func (l *Line[T]) Join(p *Place[T]) {
	l.arrivals++
	p.in, p.number, p.before, p.after = true, l.arrivals, l.tail, nil
	if l.tail == nil {
		l.head = p
	} else {
		l.tail.after = p
	}
	l.tail = p
	l.length++
}

// Leave removes a place. It reports false if the place was not in the line: it was served, or has left.
func (l *Line[T]) Leave(p *Place[T]) bool {
	if !p.in {
		return false
	}
	if p.before == nil {
		l.head = p.after
	} else {
		p.before.after = p.after
	}
	if p.after == nil {
		l.tail = p.before
	} else {
		p.after.before = p.before
	}
	p.in, p.before, p.after = false, nil, nil
	l.length--
	return true
}

// Head returns the place that has waited longest, or nil if the line is empty.
func (l *Line[T]) Head() *Place[T] { return l.head }

// Len returns how many wait.
func (l *Line[T]) Len() int { return l.length }

// All returns those who wait, in the order of arrival. The loop may remove the place that it was given.
func (l *Line[T]) All() iter.Seq[*Place[T]] {
	return func(yield func(*Place[T]) bool) {
		for p := l.head; p != nil; {
			after := p.after
			if !yield(p) {
				return
			}
			p = after
		}
	}
}

// A Turn is a grant to the process, which serves callers of a line.
type Turn struct {
	last uint64 // the newest arrival that the turn may serve
	left int    // how many it may still serve
}

// Begin begins a turn, which may serve up to passes callers after the first. It serves the head of the line, which leaves
// the line, or returns nil if the line is empty.
func (l *Line[T]) Begin(passes int) (Turn, *Place[T]) {
	t := Turn{last: l.arrivals, left: passes + 1}
	return t, l.Serve(&t)
}

// Serve serves the head of the line in the turn: it leaves the line. Serve returns nil if the turn has served all that it
// may serve.
func (l *Line[T]) Serve(t *Turn) *Place[T] {
	p := l.head
	if p == nil || p.number > t.last || t.left == 0 {
		return nil
	}
	t.left--
	l.Leave(p)
	return p
}
