package lease

import (
	"fmt"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/testing/explore"
)

// A world is one lease with up to three handles that share it, or that pass it on. It has a key in
// Redis, as far as the handles have given it back or keep others out.
type world struct {
	lease core
	seats [3]seatCore
	state [3]uint8 // of the handles
	given uint8    // how often the key was given back, or the right to it
	kept  bool     // a handle that has left was told that others are kept out
	asks  uint8    // handles that leave when the extension that keeps others out has ended
	ended bool     // the lease had ended before
	why   ending
	now   uint8 // instant
}

// States of a handle.
const (
	away uint8 = iota // it has not joined
	expected
	holding
	gone
	never // it could not join
)

var sharing = Config{TTL: 9 * time.Second, Asked: 9 * time.Second, Timeout: time.Second, Renews: true}

// instants are when something may happen: at once, when nobody may join any more, when a renewal is
// due, and when the lease has ended.
var instants = [...]time.Duration{0, 5 * time.Millisecond, 3 * time.Second, 9 * time.Second}

func (w *world) at() clock.Instant {
	return clock.Instant{Mono: clock.Mono(time.Hour).Add(instants[w.now]), Wall: instants[w.now]}
}

// unlock has a handle call Unlock.
func (w *world) unlock(i int, after time.Duration) {
	before := w.lease.phase
	r, keep := w.lease.unlock(&w.seats[i], 0, w.at(), after)
	if w.state[i] == gone && r != refuse {
		w.given = 9 // a second call decides something
	}
	w.state[i] = gone
	w.goOn(before, r, keep)
}

// goOn does what Unlock or Leave says.
func (w *world) goOn(before phase, r release, keep time.Duration) {
	switch r {
	case giveBack, giveIfThere:
		w.given++
		if w.kept && keep == 0 {
			w.given = 9 // nobody keeps others out, though a handle was told so
		}
	case giveNothing:
		if before == held || before == lost {
			w.given++ // the right was used, since others may know the token
		}
	case keepOut:
		w.asks++
	}
}

// leave has a handle leave that keeps others out. done says that its extension was.
func (w *world) leave(done bool) {
	if done {
		x := w.lease.send(0, 20*time.Second, w.at())
		w.lease.extended(&x, w.at(), nil, false, 0)
		w.kept = true
	}
	w.asks--
	before := w.lease.phase
	r, keep := w.lease.leave(w.at())
	w.goOn(before, r, keep)
}

// TestHandlesThatShareALeaseGiveTheKeyBackOnce: whatever joins, extends, keeps, is lost and unlocks,
// in any order, also in one instant.
func TestHandlesThatShareALeaseGiveTheKeyBackOnce(t *testing.T) {
	var walk explore.Walk[world]
	walk.Steps = func(from *world) {
		step := func(kind explore.Kind, name string, f func(w *world)) {
			walk.Step(from, kind, func(w *world) {
				if walk.Log != nil {
					fmt.Fprintln(walk.Log, name)
				}
				f(w)
			})
		}
		if int(from.now)+1 < len(instants) {
			step(explore.Calm, "time passes", func(w *world) { w.now++ })
		}
		step(explore.Fault, "judge", func(w *world) { w.lease.judge(w.at()) })
		step(explore.Fault, "share", func(w *world) { w.lease.reveal() })
		step(explore.Fault, "doubt", func(w *world) { w.lease.doubt(w.at().Mono) })
		step(explore.Fault, "tick", func(w *world) { w.lease.tick(w.at(), true) })
		step(explore.Fault, "extended", func(w *world) {
			x := w.lease.send(9*time.Second, 0, w.at())
			w.lease.extended(&x, w.at(), nil, false, 0)
		})
		step(explore.Fault, "gone", func(w *world) {
			x := w.lease.send(0, 0, w.at())
			w.lease.extended(&x, w.at(), errGone, true, 0)
		})
		if from.asks > 0 {
			step(explore.Calm, "leave", func(w *world) { w.leave(true) })
			step(explore.Fault, "leave, and the extension has failed", func(w *world) { w.leave(false) })
		}
		for i := range from.state {
			switch from.state[i] {
			case away:
				step(explore.Fault, fmt.Sprint("join ", i), func(w *world) {
					if w.state[i] = never; w.lease.join(w.at()) {
						w.state[i] = holding
					} else if w.now == 0 && w.lease.why == endNone {
						w.given = 9 // it was refused while the lease is open
					}
				})
			case expected:
				step(explore.Calm, fmt.Sprint("serve ", i), func(w *world) { w.state[i] = holding })
			case holding:
				step(explore.Calm, fmt.Sprint("unlock ", i), func(w *world) { w.unlock(i, 0) })
				step(explore.Fault, fmt.Sprint("unlock after ", i), func(w *world) { w.unlock(i, 20*time.Second) })
			case gone:
				step(explore.Fault, fmt.Sprint("unlock again ", i), func(w *world) { w.unlock(i, 0) })
			}
		}
	}
	walk.Wrong = func(w *world) string {
		using := int(w.asks)
		for _, s := range w.state {
			if s == holding || s == expected {
				using++
			}
		}
		switch {
		case w.given > 1:
			return "the key is given back twice, or something is wrong that never may be"
		case w.given == 1 && w.lease.why == endNone:
			return "the key is given back while the lease is trusted"
		case w.given == 0 && using == 0:
			return "nobody gives the key back"
		case w.lease.why == endNone && using == 0:
			return "the lease goes on without a handle"
		case w.lease.why == endNone && w.lease.seats+1 != using:
			return "the lease does not know how many share it"
		case w.ended && w.lease.why != w.why:
			return "the reason of an end has changed"
		}
		w.ended, w.why = w.lease.why != endNone, w.lease.why
		return ""
	}
	walk.Ended = func(w *world) bool { return w.given == 1 && w.asks == 0 }
	start := world{state: [3]uint8{holding, expected, away}}
	if explore.Chosen() == explore.Small {
		start.state[2] = never
	}
	start.lease.Config = &sharing
	start.lease.expect()
	start.lease.begin(start.at(), start.at(), 8900*time.Millisecond, 0)
	walk.Test(t, start)
}
