package node

// A queue is a doubly linked list of calls, so that a call that ends leaves it at once.
type queue struct {
	first, last *Call
	length      int
}

// links are the place of a call in a queue.
type links struct {
	in         *queue // nil: the call is in no queue
	prev, next *Call
}

// put adds c at the end.
func (q *queue) put(c *Call) {
	c.links = links{in: q, prev: q.last}
	if q.last == nil {
		q.first = c
	} else {
		q.last.next = c
	}
	q.last = c
	q.length++
}

// leave takes c out of its queue, if it is in one.
func (c *Call) leave() {
	q := c.in
	if q == nil {
		return
	}
	if c.prev == nil {
		q.first = c.next
	} else {
		c.prev.next = c.next
	}
	if c.next == nil {
		q.last = c.prev
	} else {
		c.next.prev = c.prev
	}
	q.length--
	c.links = links{}
}

// queues has a queue for each rank. Calls of a lower rank go first.
type queues [ranks]queue

// The ranks. Of the calls that have failed, those that nobody waits for go before new locks: they give
// some back.
const (
	newKeeps = iota
	newGives
	newAsks
	failedKeeps // or gives
	background
	failedAsks
	ranks
)

func (c *Call) rank() int {
	switch k := c.kind(); {
	case c.insistUntil != 0:
		return background
	case !c.refused:
		return int(k)
	case k == asks:
		return failedAsks
	}
	return failedKeeps
}

// length returns how many calls there are.
func (q *queues) length() (n int) {
	for i := range q {
		n += q[i].length
	}
	return n
}

// first returns the call that goes first, or nil.
func (q *queues) first() *Call {
	for i := range q {
		if c := q[i].first; c != nil {
			return c
		}
	}
	return nil
}
