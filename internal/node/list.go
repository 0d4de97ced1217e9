package node

// A list is a doubly linked list of calls. Each call can be removed at any time.
type list struct {
	first, last *Call
	link        func(*Call) *link // a call's place in this list
}

// A link is a call's place in a list.
type link struct{ prev, next *Call }

func (l *list) push(c *Call) {
	at := l.link(c)
	*at = link{prev: l.last}
	if l.last == nil {
		l.first = c
	} else {
		l.link(l.last).next = c
	}
	l.last = c
}

func (l *list) pushFront(c *Call) {
	at := l.link(c)
	*at = link{next: l.first}
	if l.first == nil {
		l.last = c
	} else {
		l.link(l.first).prev = c
	}
	l.first = c
}

// remove removes c, which must be in the list.
func (l *list) remove(c *Call) {
	at := l.link(c)
	if at.prev == nil {
		l.first = at.next
	} else {
		l.link(at.prev).next = at.next
	}
	if at.next == nil {
		l.last = at.prev
	} else {
		l.link(at.next).prev = at.prev
	}
	*at = link{}
}
