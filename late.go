package redlatch

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/node"
)

// A lockState is the state of an attempt and of the lease that it became; the diagram is above lease. Commands that
// outlive their callers read it. Only attempt and lease change it.
type lockState struct {
	now atomic.Int32

	// again reports that the grant found the key held by the token: an earlier send had taken it, and its reply may come
	// late.
	again atomic.Bool

	// undone reports that a late acquire was released after the lease ended. Then Unlock does not report a loss if
	// its own release found no lock.
	undone atomic.Bool
}

const (
	asking = iota
	refused
	held
	lost
	releasing
	kept
	over
)

func (s *lockState) is(state int32) bool { return s.now.Load() == state }

func (s *lockState) become(state int32) { s.now.Store(state) }

// settled reports whether nobody owns the token any more.
func (s *lockState) settled() bool { return s.is(refused) || s.is(over) }

// unwanted reports whether a late acquire must be undone. err is nil if it was granted, with the reply got. After the end
// of an attempt or of a lease a release is under way; the acquire needs another only if that release overtook it. A
// lost lock may have been adopted, so it is released only if the acquire is known to have taken the key anew. A kept key
// must stay. An entry that the acquire has queued leaves the queue in both states.
func (s *lockState) unwanted(got acquireReply, err error, overtaken bool) bool {
	switch s.now.Load() {
	case refused, releasing, over:
		return overtaken
	case lost:
		return err == nil && !got.alreadyHeld && !s.again.Load() || errors.Is(err, errQueued)
	case kept:
		return errors.Is(err, errQueued)
	}
	return false
}

// A late acquire whose connection the client gave up brings no reply. reap looks for its key: first after firstLook,
// then after pauses that double up to lastLook. While the server answers nothing, the pauses do not grow, for up to
// lookFor.
const (
	firstLook = 250 * time.Millisecond
	lastLook  = 4 * time.Second
	lookFor   = time.Minute
)

// late handles a reply r that came late from n. got and err are its content. If nobody wants the lock, late calls
// undo.
func (s *lockState) late(n *node.Node, r node.Reply, got acquireReply, err error, undo func()) {
	if knownNotDone(err) {
		return
	}
	if node.MayStillRun(err) {
		s.reap(n, undo)
	}
	if s.unwanted(got, err, r.Overtaken) {
		undo()
	}
}

// reap calls undo for a late acquire that brings no reply. Its timers end with the last look. Nobody waits for them.
func (s *lockState) reap(n *node.Node, undo func()) {
	end := time.Now().Add(lookFor)
	var after func(pause time.Duration)
	after = func(pause time.Duration) {
		time.AfterFunc(pause, func() {
			if s.settled() {
				undo()
			}
			switch {
			case n.Silent() && time.Now().Before(end):
				after(pause)
			case pause < lastLook:
				after(2 * pause)
			}
		})
	}
	after(firstLook)
}
