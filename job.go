package redlatch

import (
	"cmp"
	"context"
	"errors"
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

	here   bool // in the goroutine of who waits for it
	stray  bool // a command of it may land though nobody reads the reply
	resent bool // it may have been carried out before it failed
	waits  bool // a WAIT goes behind each command

	failed       error             // why it was carried out here in vain, until it is sent again
	flight       *redis.AutoFuture // its command, where nobody waited for that
	words        [10]any           // room for those of its first command
	acknowledged *acknowledgement  // what the last WAIT answered

	trouble atomic.Pointer[error] // why it was sent again, last
	settled atomic.Bool
	ended   chan struct{}
	grant   grant // written before ended is closed, read after
	err     error // likewise
}

// A form says what a job is beside its operation.
type form struct {
	undo    operation   // gives back what lands after the end of the lease; nil: it may stay
	report  chan<- *job // hears of the outcome; it must have room
	index   int         // of the node, for who reads report
	last    bool        // carried out even if nobody waits for it any more: a release
	ordered bool        // after the ordered jobs before it on the same key
	first   bool        // nothing was sent for its token before
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

// sentAgain notes why a command of the job is sent again, unless that was the job's own end.
func (j *job) sentAgain(err error) {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return
	}
	j.trouble.Store(&err)
	j.node.trouble.Store(&err)
}

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

// noReply returns the error of a job whose deadline has passed. One that was sent once only, or
// not at all, tells of the trouble that its node has.
func (j *job) noReply() error {
	if last := cmp.Or(j.trouble.Load(), j.node.trouble.Load()); last != nil {
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
	g, err := j.op(j, j.claim)
	if j.stray {
		j.node.chase(j.Context, j.undo, j.claim)
	}
	return g, err
}

// land settles what came of the operation, and has it undone where that comes after the lease has
// ended. Who waited for it needs no help, and neither does an Unlock whose release is ordered behind it.
func (j *job) land(g grant, err error) {
	waited := j.settle(g, err) && !j.ordered
	queued := j.claim.entry != "" && errors.Is(err, ErrNotAcquired)
	if waited || j.undo == nil || surelyNot(err) && !queued {
		return
	}
	life := j.claim.life
	switch {
	case life.refused():
	case life.lost() && err == nil && !g.found: // What was found may be an adopter's, who has the token.
	case life.released() && !j.ordered:
	case life.shed.Load() && !j.claim.chosen: // No release is ordered behind it.
	default:
		return
	}
	if !j.ordered { // Of many nodes, what one gave back explains no loss.
		life.undone.Store(true)
	}
	j.node.start(context.WithoutCancel(j.Context), j.undo, j.claim, form{last: true, ordered: j.ordered})
}
