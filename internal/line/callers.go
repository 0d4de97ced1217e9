package line

import (
	"cmp"
	"math"

	"github.com/redlatch/redlatch/internal/clock"
)

// A Caller waits in a line. The exported fields are set before Join. Only the Machine reads
// them until the caller was served, has failed or has left.
type Caller[T any] struct {
	Of       T
	Since    clock.Mono // when its call began
	Deadline clock.Mono // when its ctx ends; 0: never
	Refused  bool       // it has seen another owner in an attempt of its own
	Tell     bool       // it has a hook for the first refusal
	Follows  bool       // it has a hook for each new holder. False if a key can have several

	in         bool
	number     uint64 // grows in the order of arrival
	joined     uint64 // the attempts of the line before
	prev, next *Caller[T]
}

// A list has the callers of a line in the order of arrival.
type list[T any] struct {
	head, tail *Caller[T]
	length     int
	arrivals   uint64
	told       uint64     // the newest arrival that knows of a refusal
	filled     clock.Mono // since when the list is not empty
	patient    clock.Mono // the latest deadline of those who came since then
}

// join adds a caller at the end.
func (l *list[T]) join(c *Caller[T], now clock.Mono) {
	if l.length == 0 {
		l.filled, l.patient = now, 0
	}
	l.patient = max(l.patient, cmp.Or(c.Deadline, math.MaxInt64))
	l.arrivals++
	c.in, c.number, c.prev, c.next = true, l.arrivals, l.tail, nil
	if l.tail == nil {
		l.head = c
	} else {
		l.tail.next = c
	}
	l.tail = c
	l.length++
}

// leave removes a caller. It reports false if the caller is not in the list.
func (l *list[T]) leave(c *Caller[T]) bool {
	if !c.in {
		return false
	}
	if c.prev == nil {
		l.head = c.next
	} else {
		c.prev.next = c.next
	}
	if c.next == nil {
		l.tail = c.prev
	} else {
		c.next.prev = c.prev
	}
	c.in, c.prev, c.next = false, nil, nil
	l.length--
	return true
}
