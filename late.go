package redlatch

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/node"
)

// A lockState says what has become of an attempt to lock, and of the lease that it became:
//
//	asking ──> refused                      given up: whatever it took, or takes late, is released
//	   │
//	   └────> held ──> lost ──┐             an adopter may rely on the token
//	             │            │
//	             └────────────┴──> releasing ──> over
//	                                   │           ↑
//	                                   └──> kept ──┘   WithMinHold: the key stays, though nobody holds the lock
//
// Commands that outlive their callers read it. Only attempt and lease change it.
type lockState struct {
	now atomic.Int32

	// undone says that a late acquire was released after the end of the lease. So Unlock is not told of a
	// loss where its own release found nothing.
	undone atomic.Bool
}

const (
	asking    = iota
	refused   // never granted
	held      // granted
	lost      // ended without Unlock
	releasing // Unlock was called
	kept      // it was released, and its key lasts until WithMinHold has passed
	over      // and its release has come back, or none was sent
)

func (s *lockState) is(state int32) bool { return s.now.Load() == state }

func (s *lockState) become(state int32) { s.now.Store(state) }

// settled reports whether the token is nobody's any more.
func (s *lockState) settled() bool { return s.is(refused) || s.is(over) }

// unwanted reports whether a late acquire has to be released. What it has brought about is known where err
// is nil. After the end of the attempt or of the lease, a release is on its way, and follows unless it
// overtook the acquire. A lost lease may have been adopted, so only what is surely new is released for it.
func (s *lockState) unwanted(got acquireReply, err error, overtaken bool) bool {
	switch s.now.Load() {
	case refused, releasing, over:
		return overtaken
	case lost:
		return err == nil && !got.alreadyHeld
	}
	return false
}

// A late acquire whose connection the client gave up brings no reply, so its key is looked for: first
// after firstLook, then at pauses that double up to lastLook. While the server answers nothing the pauses
// do not grow, for as long as lookFor.
const (
	firstLook = 250 * time.Millisecond
	lastLook  = 4 * time.Second
	lookFor   = time.Minute
)

// late does what a reply r asks for that came late from n, and that says got and err: it sends undo where
// nobody wants what has landed.
func (s *lockState) late(n *node.Node, r node.Reply, got acquireReply, err error, undo func()) {
	if knownNotDone(err) {
		return
	}
	if node.MayLand(err) {
		s.reap(n, undo)
	}
	if s.unwanted(got, err, r.Overtaken) {
		undo()
	}
}

// reap looks for what a late acquire takes, and sends undo for it. The timers are its own, and end with
// the last look.
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

// knownNotDone reports whether err is the second of the three outcomes: the operation was not done and left
// nothing behind. Any other error leaves that open.
func knownNotDone(err error) bool {
	return errors.Is(err, ErrNotAcquired) || errors.Is(err, ErrInvalidOption) ||
		errors.Is(err, ErrNoQuorum) || errors.As(err, new(*node.NotDone))
}
