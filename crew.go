package redlatch

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// A job is one operation under way on one node. It is the context of its commands too: the
// caller's values, with an end of its own, which comes when the outcome is settled. An operation
// that nobody waits for any more thus sends nothing again.
type job struct {
	context.Context
	node     *node
	op       operation
	claim    *claim
	undo     operation // of an operation that succeeds after its caller has left; nil: none
	deadline time.Time

	next, prev *job // guarded by crew.mu
	listed     bool // likewise

	settled atomic.Bool
	ended   chan struct{}
	grant   grant // written before ended is closed, read after
	err     error // likewise
}

func (j *job) Deadline() (time.Time, bool) { return j.deadline, true }

func (j *job) Done() <-chan struct{} { return j.ended }

func (j *job) Err() error {
	if j.settled.Load() {
		return context.Canceled
	}
	return nil
}

// settle makes g and err the outcome, unless there is one, and reports whether it did.
func (j *job) settle(g grant, err error) bool {
	if !j.settled.CompareAndSwap(false, true) {
		return false
	}
	j.grant, j.err = g, err
	close(j.ended)
	return true
}

// land settles what came of the operation. Where the caller has left meanwhile, the straggler is
// undone in a goroutine of its own, which ends with the bound of that.
func (j *job) land(g grant, err error) {
	if !j.settle(g, err) && j.undo != nil && !surelyNot(err) {
		go func() { _, _ = j.node.do(context.WithoutCancel(j.Context), j.undo, j.claim, nil) }()
	}
}

// idleTime is how long a worker that nobody needs stays, at least.
const idleTime = 100 * time.Millisecond

// A crew runs the jobs of one node in goroutines, which it keeps for a while: a new one would have
// to grow its stack. One timer serves all deadlines, and dismisses the workers nobody needs; it
// rests when there is neither.
type crew struct {
	mu    sync.Mutex // guards the fields below, and the links of jobs
	idle  []worker   // the last to come is the first to go
	spare int        // so many were idle ever since the timer fired
	jobs  job        // the ring of all jobs whose deadline counts; its deadline is the timer's
	timer *time.Timer
}

// A worker is a goroutine that waits for jobs. A nil ends it.
type worker chan *job

// start runs j in a goroutine. It ends when the client lets go of it and, but for workers that
// are kept, soon after.
func (c *crew) start(j *job) {
	c.mu.Lock()
	c.list(j)
	if n := len(c.idle); n > 0 {
		w := c.idle[n-1]
		c.idle = c.idle[:n-1]
		c.spare = min(c.spare, n-1)
		c.mu.Unlock()
		w <- j
		return
	}
	c.mu.Unlock()
	go make(worker, 1).work(c, j)
}

// work runs jobs until it is dismissed.
func (w worker) work(c *crew, j *job) {
	for ; j != nil; j = <-w {
		g, err := j.op(j, j.node, j.claim)
		c.mu.Lock()
		c.strike(j)
		c.idle = append(c.idle, w)
		c.mu.Unlock()
		j.land(g, err)
	}
}

// list puts j into the ring and has the timer fire for its deadline.
func (c *crew) list(j *job) {
	if c.jobs.next == nil {
		c.jobs.next, c.jobs.prev = &c.jobs, &c.jobs
	}
	j.listed = true
	j.prev, j.next = c.jobs.prev, &c.jobs
	j.prev.next, j.next.prev = j, j
	if c.jobs.deadline.IsZero() || j.deadline.Before(c.jobs.deadline) {
		c.fireAt(j.deadline)
	}
}

// strike takes j out of the ring.
func (c *crew) strike(j *job) {
	if j.listed {
		j.listed = false
		j.prev.next, j.next.prev = j.next, j.prev
		j.prev, j.next = nil, nil
	}
}

// fireAt sets the timer.
func (c *crew) fireAt(t time.Time) {
	c.jobs.deadline = t
	if c.timer == nil {
		c.timer = time.AfterFunc(time.Until(t), c.fire)
	} else {
		c.timer.Reset(time.Until(t))
	}
}

// fire runs when the timer does. It settles the jobs whose deadline has passed, dismisses the
// workers that were idle since it fired last, and sets the timer anew if there is a reason to.
func (c *crew) fire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	var next time.Time
	for j := c.jobs.next; j != &c.jobs; {
		following := j.next
		switch {
		case !j.deadline.After(now):
			c.strike(j)
			j.settle(grant{}, &noReply{j.claim.bound})
		case next.IsZero() || j.deadline.Before(next):
			next = j.deadline
		}
		j = following
	}
	for _, w := range c.idle[:c.spare] {
		w <- nil
	}
	c.idle = append(c.idle[:0], c.idle[c.spare:]...)
	c.spare = len(c.idle)
	if again := now.Add(idleTime); c.spare > 0 && (next.IsZero() || again.Before(next)) {
		next = again
	}
	c.jobs.deadline = next
	if !next.IsZero() {
		c.fireAt(next)
	}
}
