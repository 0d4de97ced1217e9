package redlatch

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

const (
	// mostJobs is how many jobs of a node run at once, and mostOfQuorum where it is one of several.
	// The rest wait without a goroutine.
	mostJobs     = 1000
	mostOfQuorum = 50

	// longestLane is how many jobs wait for one that is under way on their key, where the node answers
	// nothing.
	longestLane = 100

	// longSilence is after how long a node that keeps so many jobs and answers none sheds: it
	// takes no more but releases, so that a node that hangs for long piles nothing up.
	longSilence = 500 * time.Millisecond
)

var errSheds = errors.New("the node answers nothing, and nothing more is sent to it")

// A crew runs the jobs of one node, each in a goroutine. One timer serves all deadlines.
type crew struct {
	mu      sync.Mutex      // guards the fields below, and the links of jobs
	most    int             // workers there may be; set before the first job
	working int             // workers that have a job
	full    time.Time       // when all of them first had one, since the node last answered
	flights int             // commands that their callers have left
	crowded time.Time       // when there were as many as there may be workers
	probed  time.Time       // when one more was let through
	heard   time.Time       // when a job last was answered
	missed  bool            // since then a job has waited in vain for its whole time
	waiting []*job          // for a worker, in order
	lanes   map[string]lane // by key, while an ordered job is under way on it
	jobs    job             // the ring of all jobs whose deadline counts; its deadline is the timer's
	timer   *time.Timer
}

// A lane is what goes on for one key.
type lane struct {
	since time.Time // when the job under way began, or was to
	jobs  []*job    // those behind it
}

// silentSince reports whether the node has answered nothing for long, though it was asked at t.
func (c *crew) silentSince(t time.Time) bool {
	if c.heard.After(t) {
		t = c.heard
	}
	return time.Since(t) > longSilence
}

// start has j carried out, in a goroutine that ends when the client lets go of the operation, and of
// those that waited for it.
func (c *crew) start(j *job) {
	c.mu.Lock()
	if j.ordered {
		_, busy := c.lanes[j.claim.key]
		if busy && j.last && c.withdrawLocked(j) {
			c.mu.Unlock()
			j.settle(grant{}, ErrLost) // nothing was ever sent for this token
			return
		}
		if busy && c.crowdedLocked(j.claim.key) {
			if j.last {
				j.claim.life.shed.Store(true) // for what is under way, which lands after this
			}
			c.mu.Unlock()
			j.settle(grant{}, j.shed())
			return
		}
		if busy {
			c.listLocked(j)
			on := c.lanes[j.claim.key]
			on.jobs = append(on.jobs, j)
			c.lanes[j.claim.key] = on
			c.mu.Unlock()
			return
		}
	}
	if c.working == c.most && c.silentSince(c.full) && (j.ordered || !j.last) {
		c.mu.Unlock()
		j.settle(grant{}, j.shed())
		return
	}
	c.listLocked(j)
	if j.ordered {
		if c.lanes == nil {
			c.lanes = make(map[string]lane)
		}
		c.lanes[j.claim.key] = lane{since: time.Now()}
	}
	if c.working == c.most {
		c.waiting = append(c.waiting, j)
		c.mu.Unlock()
		return
	}
	if c.working++; c.working == 1 {
		c.full = time.Time{}
	}
	if c.working == c.most && !c.heard.Before(c.full) {
		c.full = time.Now()
	}
	c.mu.Unlock()
	go c.work(j)
}

// shed returns the error of a job that is not sent, or not once more.
func (j *job) shed() error {
	if j.resent {
		return errSheds
	}
	return &undone{errSheds}
}

// crowdedLocked reports whether too many jobs wait for one on key that is not answered. It forgets
// those that nobody waits for any more.
func (c *crew) crowdedLocked(key string) bool {
	on := c.lanes[key]
	if len(on.jobs) < longestLane || !c.silentSince(on.since) {
		return false
	}
	on.jobs = slices.DeleteFunc(on.jobs, func(j *job) bool {
		needless := j.settled.Load() && !j.last
		if needless {
			c.strikeLocked(j)
		}
		return needless
	})
	c.lanes[key] = on
	return len(on.jobs) >= longestLane
}

// withdrawLocked takes the jobs of j's token that were not sent yet out of the lane that j would
// join, and reports whether that leaves nothing for j to release.
func (c *crew) withdrawLocked(j *job) bool {
	on := c.lanes[j.claim.key]
	kept := on.jobs[:0]
	needless := false
	for _, k := range on.jobs {
		if k.claim.token != j.claim.token || k.last {
			kept = append(kept, k)
			continue
		}
		c.strikeLocked(k)
		k.settle(grant{}, &undone{context.Canceled})
		needless = needless || k.first
	}
	clear(on.jobs[len(kept):])
	on.jobs = kept
	c.lanes[j.claim.key] = on
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
		if err != nil && j.listed && time.Now().After(j.deadline) {
			c.missLocked(j) // before the timer could say so
		}
		c.strikeLocked(j)
		c.hearLocked(err)
		next := c.afterLocked(j)
		if next == nil {
			c.working--
		}
		c.mu.Unlock()
		j.land(g, err)
		j = next
	}
}

// afterLocked returns the job that the worker of j turns to: the next that waits for a worker. The
// next on the key is the last of them.
func (c *crew) afterLocked(j *job) *job {
	if j.ordered {
		behind := c.lanes[j.claim.key].jobs
		if len(behind) == 0 {
			delete(c.lanes, j.claim.key)
		} else {
			c.lanes[j.claim.key] = lane{time.Now(), behind[1:]}
			if len(c.waiting) == 0 {
				return behind[0]
			}
			c.waiting = append(c.waiting, behind[0])
		}
	}
	if len(c.waiting) == 0 {
		return nil
	}
	next := c.waiting[0]
	c.waiting[0] = nil
	c.waiting = c.waiting[1:]
	return next
}

// list has j, which its caller carries out, settled at its deadline, unless it is struck off before.
// It does not where the node sheds, which lets one through now and then to learn whether it answers.
func (c *crew) list(j *job) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.flights >= c.most && c.silentSince(c.crowded) && !j.last {
		if time.Since(c.probed) < longSilence {
			return false
		}
		c.probed = time.Now()
	}
	c.listLocked(j)
	return true
}

// strike ends what list began. The operation has come to err.
func (c *crew) strike(j *job, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.strikeLocked(j)
	if c.flights > 0 {
		c.hearLocked(err)
	}
}

// abandon notes a command that nobody waits for any more, and that the client has not let go of.
func (c *crew) abandon() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.flights++; c.flights == c.most {
		c.crowded = time.Now()
	}
}

// landed notes that such a command has come to err.
func (c *crew) landed(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flights--
	c.hearLocked(err)
}

// hearLocked notes that the node has answered, if err says so.
func (c *crew) hearLocked(err error) {
	if err == nil || answered(err) || errors.Is(err, ErrNotAcquired) || errors.Is(err, ErrLost) {
		c.heard, c.missed = time.Now(), false
	}
}

// missLocked notes that j has waited for its whole time, in vain unless the node answered another.
func (c *crew) missLocked(j *job) {
	c.missed = c.missed || !c.heard.After(j.deadline.Add(-j.claim.bound))
}

// silent reports whether the node has answered nothing since a job waited in vain.
func (c *crew) silent() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.missed
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
			c.missLocked(j)
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
