package redlatch

import (
	"context"
	"errors"
	"sync"
	"time"
)

const (
	// mostJobs is how many jobs of a node run at once, and mostOfQuorum where it is one of several.
	// The rest wait without a goroutine.
	mostJobs     = 1000
	mostOfQuorum = 50

	// longSilence is after how long a node that keeps so many jobs and answers none sheds: it
	// takes no more, so that a node that hangs for long piles nothing up.
	longSilence = 500 * time.Millisecond
)

var errSheds = errors.New("the node answers nothing, and nothing more is sent to it")

// A crew runs the jobs of one node, each in a goroutine. One timer serves all deadlines.
type crew struct {
	mu      sync.Mutex        // guards the fields below, and the links of jobs
	most    int               // workers there may be; set before the first job
	working int               // workers that have a job
	heard   time.Time         // when a job last was answered, or the first of those under way began
	waiting []*job            // for a worker, in order
	lines   map[string][]*job // by key, the ordered jobs behind the one under way
	jobs    job               // the ring of all jobs whose deadline counts; its deadline is the timer's
	timer   *time.Timer
}

// start has j carried out, in a goroutine that ends when the client lets go of the operation, and of
// those that waited for it.
func (c *crew) start(j *job) {
	c.mu.Lock()
	if j.ordered {
		line, busy := c.lines[j.claim.key]
		if busy && j.last && c.withdrawLocked(j, line) {
			c.mu.Unlock()
			j.settle(grant{}, ErrLost) // nothing was ever sent for this token
			return
		}
		if busy {
			c.listLocked(j)
			c.lines[j.claim.key] = append(c.lines[j.claim.key], j)
			c.mu.Unlock()
			return
		}
	}
	if c.working == c.most && time.Since(c.heard) > longSilence {
		c.mu.Unlock()
		j.settle(grant{}, &undone{errSheds})
		return
	}
	c.listLocked(j)
	if j.ordered {
		if c.lines == nil {
			c.lines = make(map[string][]*job)
		}
		c.lines[j.claim.key] = nil
	}
	if c.working == c.most {
		c.waiting = append(c.waiting, j)
		c.mu.Unlock()
		return
	}
	if c.working++; c.working == 1 {
		c.heard = time.Now()
	}
	c.mu.Unlock()
	go c.work(j)
}

// withdrawLocked takes the jobs of j's token that were not sent yet out of the line that j would
// join, and reports whether that leaves nothing for j to release.
func (c *crew) withdrawLocked(j *job, line []*job) bool {
	kept := line[:0]
	needless := false
	for _, k := range line {
		if k.claim.token != j.claim.token || k.last {
			kept = append(kept, k)
			continue
		}
		c.strikeLocked(k)
		k.settle(grant{}, &undone{context.Canceled})
		needless = needless || k.first
	}
	clear(line[len(kept):])
	c.lines[j.claim.key] = kept
	return needless
}

// deepen makes a new goroutine's stack as deep as go-redis needs it, while there is little on it to
// move. Growing by and by costs more than a tenth of what a command costs.
//
//go:noinline
func deepen(i int) byte {
	var room [6 << 10]byte
	return room[i%len(room)]
}

// work carries out j and what comes after it.
func (c *crew) work(j *job) {
	deepen(c.most)
	for j != nil {
		g, err := j.perform()
		c.mu.Lock()
		c.strikeLocked(j)
		if err == nil || answered(err) || errors.Is(err, ErrNotAcquired) || errors.Is(err, ErrLost) {
			c.heard = time.Now()
		}
		next := c.afterLocked(j)
		if next == nil {
			c.working--
		}
		c.mu.Unlock()
		j.land(g, err)
		j = next
	}
}

// afterLocked returns the job that the worker of j turns to: the next on the key, or the next that
// waits for a worker.
func (c *crew) afterLocked(j *job) *job {
	if j.ordered {
		if line := c.lines[j.claim.key]; len(line) > 0 {
			c.lines[j.claim.key] = line[1:]
			return line[0]
		}
		delete(c.lines, j.claim.key)
	}
	if len(c.waiting) == 0 {
		return nil
	}
	next := c.waiting[0]
	c.waiting = c.waiting[1:]
	return next
}

// list has j settled at its deadline, unless it is struck off before.
func (c *crew) list(j *job) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listLocked(j)
}

// strike ends what list began.
func (c *crew) strike(j *job) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.strikeLocked(j)
}

// listLocked puts j into the ring and has the timer fire for its deadline.
func (c *crew) listLocked(j *job) {
	if c.jobs.next == nil {
		c.jobs.next, c.jobs.prev = &c.jobs, &c.jobs
	}
	j.listed = true
	j.prev, j.next = c.jobs.prev, &c.jobs
	j.prev.next, j.next.prev = j, j
	if c.jobs.deadline.IsZero() || j.deadline.Before(c.jobs.deadline) {
		c.fireAtLocked(j.deadline)
	}
}

// strikeLocked takes j out of the ring.
func (c *crew) strikeLocked(j *job) {
	if j.listed {
		j.listed = false
		j.prev.next, j.next.prev = j.next, j.prev
		j.prev, j.next = nil, nil
	}
}

// fireAtLocked sets the timer.
func (c *crew) fireAtLocked(t time.Time) {
	c.jobs.deadline = t
	if c.timer == nil {
		c.timer = time.AfterFunc(time.Until(t), c.fire)
	} else {
		c.timer.Reset(time.Until(t))
	}
}

// fire runs when the timer does. It settles the jobs whose deadline has passed, and sets the timer
// for the next.
func (c *crew) fire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	var next time.Time
	for j := c.jobs.next; j != &c.jobs; {
		following := j.next
		switch {
		case !j.deadline.After(now):
			c.strikeLocked(j)
			j.settle(grant{}, j.noReply())
		case next.IsZero() || j.deadline.Before(next):
			next = j.deadline
		}
		j = following
	}
	c.jobs.deadline = time.Time{}
	if !next.IsZero() {
		c.fireAtLocked(next)
	}
}
