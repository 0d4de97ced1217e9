package redlatch

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// A job is one operation under way on one node. It is the context of its commands too: the
// caller's values, with an end of its own, which comes when the outcome is settled. An operation
// that nobody waits for any more thus sends nothing again, unless it is the last of its token.
type job struct {
	context.Context
	node     *node
	op       operation
	claim    *claim
	deadline time.Time
	form

	next, prev *job // guarded by crew.mu
	listed     bool // likewise

	here   bool              // in the goroutine of who waits for it
	flight *redis.AutoFuture // its command, where nobody waited for that
	stray  bool              // its command may land though nobody reads the reply
	failed error             // why it was carried out here in vain, until it is sent again
	resent bool              // it may have been carried out then
	words  [10]any           // room for those of its command

	waits        bool            // a WAIT goes behind each command
	acknowledged acknowledgement // what it answered last

	trouble atomic.Pointer[error] // why it was sent again, last
	settled atomic.Bool
	ended   chan struct{}
	grant   grant // written before ended is closed, read after
	err     error // likewise
}

// A form says what a job is beside its operation.
type form struct {
	undo    operation   // gives back what lands after the end of the lease; nil: it may stay
	last    bool        // carried out even if nobody waits for it any more: a release
	ordered bool        // after the ordered jobs before it on the same key
	first   bool        // nothing was sent for its token before
	report  chan<- *job // hears of the outcome; it must have room
	index   int         // of the node, for who reads report
}

func (j *job) Deadline() (time.Time, bool) { return j.deadline, !j.stays() }

// stays reports whether its end ends no command: those of a release are carried out by the crew
// though nobody waits for them.
func (j *job) stays() bool { return j.last && !j.here }

func (j *job) Done() <-chan struct{} {
	if j.stays() {
		return nil
	}
	return j.ended
}

func (j *job) Err() error {
	if j.settled.Load() && !j.stays() {
		return context.Canceled
	}
	return nil
}

// sentAgain notes why a command of the job is sent again.
func (j *job) sentAgain(err error) { j.trouble.Store(&err) }

// wait returns the outcome of j. Where ctx ends first, that is the outcome.
func (j *job) wait(ctx context.Context) (grant, error) {
	select {
	case <-j.ended:
	case <-ctx.Done():
		j.settle(grant{}, j.cutShort(ctxError(ctx)))
		<-j.ended
	}
	return j.grant, j.err
}

// cutShort returns the error of a job whose caller left for end.
func (j *job) cutShort(end error) error {
	if last := j.trouble.Load(); last != nil {
		return &cutShort{end, *last}
	}
	return end
}

// noReply returns the error of a job whose deadline has passed.
func (j *job) noReply() error {
	if last := j.trouble.Load(); last != nil {
		return &noReply{j.claim.bound, *last}
	}
	return &noReply{within: j.claim.bound}
}

// settle makes g and err the outcome, unless there is one, and reports whether it did.
func (j *job) settle(g grant, err error) bool {
	if !j.settled.CompareAndSwap(false, true) {
		return false
	}
	j.grant, j.err = g, err
	close(j.ended)
	if j.report != nil {
		j.report <- j
	}
	return true
}

// perform carries the operation out, unless nobody waits for it any more.
func (j *job) perform() (grant, error) {
	if j.settled.Load() && !j.last {
		return grant{}, &undone{context.Canceled}
	}
	return j.op(j, j.node, j.claim)
}

// land settles what came of the operation, and has it undone where that comes after the lease has
// ended. A release that is ordered behind it needs no help, and neither does who waited for it.
func (j *job) land(g grant, err error) {
	waited := j.settle(g, err) && !j.ordered
	queued := j.claim.entry != "" && errors.Is(err, ErrNotAcquired)
	if waited || j.undo == nil || surelyNot(err) && !queued {
		return
	}
	if life := j.claim.life; life.lost() || life.over() && !j.ordered {
		life.undone.Store(true)
		j.node.start(context.WithoutCancel(j.Context), j.undo, j.claim, form{last: true, ordered: j.ordered})
	}
}

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
